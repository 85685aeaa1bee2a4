"""Amazon SNS, on the port of SQS.

A topic of SNS is a topic of the broker's, with one partition, which readers of all protocols may
read; what is published through SNS is stored there, and copied to the queues that subscribe.

    application         the actions, and who may do what
    topics              make, list, describe, change and delete topics
    subscriptions       subscribe queues, and change how
    publishing          publish messages, to the topic and the queues
    notification        what a subscriber gets of a message
    endpoints           HTTP endpoints that subscribe: their queues, and their confirmation
    delivery            send what waits for one endpoint, again if it must be
    delivery_policy     how often and when it is sent again
    posting             one request to an endpoint
    url                 addresses of endpoints, and which are allowed
    filter_policy       which messages a subscription wants
"""
