"""Amazon SNS, on the port of SQS.

A topic of SNS is a topic of the broker's, with one partition, which readers of all protocols may
read; what is published through SNS is stored there, and copied to the queues that subscribe.

    application         the actions, and who may do what
    topics              make, list, describe, change and delete topics
    subscriptions       subscribe queues, and change how
    publishing          publish messages, to the topic and the queues
    notification        what a queue gets of a message
    filter_policy       which messages a subscription wants
"""
