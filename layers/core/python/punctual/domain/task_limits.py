"""Limits and reserved words of tasks, for the check of a request and for the runners."""

import re

LONG_TASK_TYPES = ("script", "container")  # these run in the long lane
LATER_STARTING_TASK_TYPES = ("container",)  # claimed first, and RUNNING when the work starts
MAX_WAITED_SCRIPT_SECONDS = 25  # on AWS a script with a longer timeout goes to a detached runner
MAX_URL_CHARACTERS = 8 * 1024
MAX_TASK_HEADERS = 50
MAX_TASK_HEADER_BYTES = 8 * 1024
MAX_REDIRECTS = 5
RESERVED_ENV_PREFIX = "PUNCTUAL_"
BINARY_ENTRY_NAME = "main"  # of the program in a zip, for the runtime `binary`
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CONTROL_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
