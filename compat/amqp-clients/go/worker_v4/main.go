// worker_v4 QUEUE: a durable queue, and one task at a time.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Worker{Durable: true, Prefetch: 1}.Run() }
