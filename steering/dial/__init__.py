"""A dial: its value, its file, and its thresholds by category.

Reads and writes dials.safetensors. `steering.controller` puts dials into a model.
"""

from steering.dial.category import CategoryRead as CategoryRead
from steering.dial.category import CategoryThresholds as CategoryThresholds
from steering.dial.file import MadeFor as MadeFor
from steering.dial.file import check_weights as check_weights
from steering.dial.file import load_dials as load_dials
from steering.dial.file import read_dials as read_dials
from steering.dial.file import save_dials as save_dials
from steering.dial.value import ANSWERING as ANSWERING
from steering.dial.value import Dial as Dial
from steering.dial.value import Kind as Kind
from steering.dial.value import ReadName as ReadName
from steering.dial.value import category_read as category_read
from steering.dial.value import check_order as check_order
from steering.dial.value import gate as gate
from steering.dial.value import read_places as read_places
