"""MQTT 3.1, 3.1.1 and 5: translates packets into verbs of the broker, and back.

adapter         one client: a pump with MQTT's codec, limits and error replies
handshake       from CONNECT to CONNACK: login, session, limits
authentication  enhanced authentication: SCRAM
connection      an open connection: which packet is served by what
publishing      PUBLISH from clients, and the answers to them
delivery        PUBLISH to clients, and their answers
subscribing     SUBSCRIBE and UNSUBSCRIBE
answers         answers in the order of what they answer
format          properties of messages, as they are stored
"""
