"""How the daemon is reached: who may connect, by which name, with which credentials.

It stands before any application: nothing in here knows what is answered.
"""
