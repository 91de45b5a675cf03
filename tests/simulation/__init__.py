"""One seed drives a world: groups and members, a bad log, crashes, clocks that jump; every promise is watched.

    faults      what may go wrong, each with a rate; every world draws some of them
    actors      who asks: members as clients are, and others who keep no rules
    world       wires, log and clock between them; ends calm, and then everybody must be in
    script      what the log held and how it was cut into batches: all that the coordinator ever sees
    judge       takes a script through the coordinator, kills and restarts included, and watches every promise
    audits      takes the same script again in other ways, which must not show
    shrink      cuts a script that breaks a promise down to a short one
    runs        many worlds, one after another or side by side

A world plays live against a judge and leaves a script behind; the script alone brings the judge to the same end.
"""
