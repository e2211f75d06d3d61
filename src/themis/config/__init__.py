"""The configuration of service, nodes and bridges.

keys           the tree of keys: values, meaning and whether each may change
value_types    the types of values, with their checks
addresses      HOST:PORT
loader         flags over environment over file over defaults; all mistakes with their places
reload         which keys another configuration changes while the service runs
secret         texts that do not show themselves
"""
