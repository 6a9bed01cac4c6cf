"""The compiler: Graph -> passes -> schedule -> memory plan -> Program."""
