from .app import Server as Server
from .app import create_app as create_app
