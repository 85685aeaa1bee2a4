// worker_v1 QUEUE: acknowledged automatically; what a worker had is lost with it.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Worker{AutoAck: true}.Run() }
