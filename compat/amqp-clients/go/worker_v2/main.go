// worker_v2 QUEUE: acknowledged when done; what a worker had goes to another.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Worker{}.Run() }
