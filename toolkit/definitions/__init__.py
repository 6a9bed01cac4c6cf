"""How modules and classes are defined: names found on first use, frozen records."""
