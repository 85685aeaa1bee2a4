// new_task_v1 QUEUE TASK...: tasks that do not outlive the broker.
package main

import "entrepot/compat/amqp-clients/tasks"

func main() { tasks.Publish(false) }
