// node take.js QUEUE: takes one message of the queue, and prints it.
'use strict'

const amqp = require('amqplib')

async function main () {
  const connection = await amqp.connect(process.env.AMQP_URL)
  const channel = await connection.createChannel()
  const message = await channel.get(process.argv[2])
  channel.ack(message)
  console.log(message.content.toString())
  await channel.close()
  await connection.close()
}

main()
