"""The list of attacks: malicious files.

An attack is a function that writes a file into a folder and returns a function that
reads the file. Code that runs creates the file `ran` in the folder. The reader must
not read `secret.txt` in the folder.
"""

ATTACKS = {}
HARMLESS = set()  # attacks that may be read, because they have no effect
SECRET = "the secret words"
CODE = "import os; os.system('touch ran')"
ZEROS = bytes(1 << 20)


def attack(name, make=None, harmless=False):
    """Register an attack; make: (folder) -> a function that reads the file."""

    def note(function):
        assert name not in ATTACKS, name
        ATTACKS[name] = function
        if harmless:
            HARMLESS.add(name)
        return function

    return note if make is None else note(make)
