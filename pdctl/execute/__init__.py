"""Carrying out a plan: under a lock on every host, each act written down before it is made, verified before the next.

    world = OpenWorld(cluster)
    plan = plan_restart(cluster, wish, world.survey(), new_run_id(...))
    outcome = carry_out(world, cluster, plan, record)

``world.py`` is the only way to the hosts, ``survey.py`` what a plan stands on, ``seeing.py`` one look at what is being
restarted, ``record.py`` the run in the journal and back, ``locks.py`` the hosts' locks, ``run.py`` the carrying out.
"""
