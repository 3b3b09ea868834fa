"""One scientific question a module, with scoring, report and command line. Imports everything; nothing imports it."""
