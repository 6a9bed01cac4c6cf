"""Child processes and threads: how the package starts them, and trusted files.

A child never imports a module or runs a program only because it is in the current
folder. `docs/guides/processes.md` lists every kind of child and the files it trusts.
"""

from toolkit.processes.programs import (
    clean_environment as clean_environment,
    find_package_folders as find_package_folders,
    find_program as find_program,
    load_library as load_library,
    set_processor_name as set_processor_name,
)
from toolkit.processes.python import (
    enter_user_code as enter_user_code,
    exit_with_parent as exit_with_parent,
    import_main_module as import_main_module,
    python_command as python_command,
)
