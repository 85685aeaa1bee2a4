"""Bridges: topics of another MQTT broker here, and ours there.

topics      which topics cross, in which direction, and under which names
connection  one connection to the other broker: a client's handshake, then both sides alike
bridge      the session here, and a connection that is made again whenever it is lost

A connection of MQTT is the same in both directions once it is open: PUBLISH and its answers. So a
bridge is a session of this broker like that of any client, with the same delivery and publishing;
only the handshake and the subscriptions are the other way round. What waits for the other side
waits in the session's queue, and QoS 2 is exactly once through a crash of either side.
"""
