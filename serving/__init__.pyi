from .app import create_app as create_app
from .server import Server as Server
