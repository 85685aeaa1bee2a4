"""Amazon SQS over HTTP, for the clients of AWS with an endpoint of their own.

A queue of SQS is a queue of the first virtual host: whoever declares `work` over AMQP finds it
here. `application` reads requests in both protocols of SQS, JSON and the older one of forms and
XML, finds out who asks, and calls the function of the action. The others are

    call                what an action gets: its parameters, the user, the broker
    queues              make, list, describe, change, purge and delete queues
    queue_attributes    attributes of a queue, and the settings that the broker has for them
    sending             send messages
    receiving           receive messages, wait for them, settle and hide them
    moving              move dead letters to where they came from
    permissions         allow users some actions on one queue
    translation         a message of the broker's and one of SQS
    login               who sends a request
    sns                 Amazon SNS, on the same port
"""
