"""MQTT: the nine scripts of the lab, and a platform for devices that come and go."""
