// new_task_v3 QUEUE TASK...: a durable queue, persistent messages.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Publish(true) }
