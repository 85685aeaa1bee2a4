// worker_v3 QUEUE: a durable queue.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Worker{Durable: true}.Run() }
