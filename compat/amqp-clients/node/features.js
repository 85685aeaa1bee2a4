// What amqplib does with a broker. Each prints PASS and its name, or FAIL and what happened.
// With --list only their names.
'use strict'

const amqp = require('amqplib')
const assert = require('assert')

const PATIENCE_MS = 10000

function within (promise) {
  let timer
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error('nothing happened')), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

async function helloWorld (connection) {
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  const received = new Promise(resolve => {
    channel.consume(queue, resolve, { noAck: true })
  })
  channel.sendToQueue(queue, Buffer.from('Hello World!'))
  assert.strictEqual((await received).content.toString(), 'Hello World!')
}

async function prefetch (connection) {
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  await channel.prefetch(2)
  for (const body of 'abcde') channel.sendToQueue(queue, Buffer.from(body))
  const got = []
  let done
  const all = new Promise(resolve => { done = resolve })
  let out = 0
  await channel.consume(queue, message => {
    out += 1
    assert(out <= 2, `${out} are out`)
    got.push(message.content.toString())
    setTimeout(() => {
      out -= 1
      channel.ack(message)
      if (got.length === 5) done()
    }, 30)
  })
  await all
  assert.deepStrictEqual(got, [...'abcde'])
}

async function confirms (connection) {
  const channel = await connection.createConfirmChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  for (let i = 0; i < 1000; i++) {
    channel.sendToQueue(queue, Buffer.from(String(i)), { persistent: true })
  }
  await channel.waitForConfirms()
  assert.strictEqual((await channel.checkQueue(queue)).messageCount, 1000)
}

async function returned (connection) {
  const channel = await connection.createConfirmChannel()
  const back = new Promise(resolve => channel.on('return', resolve))
  channel.publish('amq.direct', 'nobody', Buffer.from('m'), { mandatory: true })
  await channel.waitForConfirms()
  assert.strictEqual((await back).fields.replyCode, 312)
}

async function fanout (connection) {
  const channel = await connection.createChannel()
  const { exchange } = await channel.assertExchange(
    `logs-${process.pid}`, 'fanout', { autoDelete: true, durable: false })
  const received = []
  for (let i = 0; i < 3; i++) {
    const { queue } = await channel.assertQueue('', { exclusive: true })
    await channel.bindQueue(queue, exchange, '')
    received.push(new Promise(resolve => channel.consume(queue, resolve, { noAck: true })))
  }
  channel.publish(exchange, '', Buffer.from('m'))
  for (const message of await Promise.all(received)) {
    assert.strictEqual(message.content.toString(), 'm')
  }
}

async function directReplyTo (connection) {
  const asking = await connection.createChannel()
  const answering = await connection.createChannel()
  const { queue } = await answering.assertQueue('', { exclusive: true })
  await answering.consume(queue, message => {
    const { replyTo, correlationId } = message.properties
    const answer = Buffer.from(message.content.toString().toUpperCase())
    answering.sendToQueue(replyTo, answer, { correlationId })
    answering.ack(message)
  })
  const answered = new Promise(resolve => {
    asking.consume('amq.rabbitmq.reply-to', resolve, { noAck: true })
  })
  asking.sendToQueue(queue, Buffer.from('question'),
    { replyTo: 'amq.rabbitmq.reply-to', correlationId: '7' })
  const answer = await answered
  assert.strictEqual(answer.content.toString(), 'QUESTION')
  assert.strictEqual(answer.properties.correlationId, '7')
}

async function headers (connection) {
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  const sent = {
    text: 'grüße', small: 1, large: 2 ** 40, negative: -5, fraction: 1.5, yes: true,
    nothing: null, list: [1, 'two', { three: 3 }], table: { in: { side: 'it' } }
  }
  channel.sendToQueue(queue, Buffer.from('m'), {
    headers: sent, contentType: 'text/plain', messageId: 'id', priority: 4, timestamp: 1600000000
  })
  const message = await channel.get(queue, { noAck: true })
  assert.deepStrictEqual({ ...message.properties.headers }, sent)
  assert.strictEqual(message.properties.contentType, 'text/plain')
  assert.strictEqual(message.properties.messageId, 'id')
  assert.strictEqual(message.properties.priority, 4)
  assert.strictEqual(await channel.get(queue), false)
}

async function expired (connection) {
  const channel = await connection.createChannel()
  const graves = (await channel.assertQueue('', { exclusive: true })).queue
  const { queue } = await channel.assertQueue('', {
    exclusive: true, messageTtl: 100, deadLetterExchange: '', deadLetterRoutingKey: graves
  })
  const dead = new Promise(resolve => channel.consume(graves, resolve, { noAck: true }))
  channel.sendToQueue(queue, Buffer.from('m'))
  const [death] = (await dead).properties.headers['x-death']
  assert.strictEqual(death.reason, 'expired')
  assert.strictEqual(death.queue, queue)
}

async function cancelled (connection) {
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  const told = new Promise(resolve => channel.consume(queue, resolve))
  await channel.deleteQueue(queue)
  assert.strictEqual(await told, null)
}

async function mistake (connection) {
  const channel = await connection.createChannel()
  const failed = new Promise(resolve => channel.on('error', resolve))
  await assert.rejects(channel.checkQueue('no such queue'), /404/)
  assert.strictEqual((await failed).code, 404)
  await (await connection.createChannel()).assertQueue('', { exclusive: true })
}

async function requeued (connection) {
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  channel.sendToQueue(queue, Buffer.from('m'))
  channel.nack(await channel.get(queue))
  const again = await channel.get(queue, { noAck: true })
  assert.strictEqual(again.fields.redelivered, true)
}

const FEATURES = {
  'Hello World': helloWorld,
  prefetch,
  'a thousand confirms': confirms,
  'an unroutable message is returned': returned,
  'a fanout exchange': fanout,
  'direct reply-to': directReplyTo,
  'headers of every type': headers,
  'an expired message is a dead letter': expired,
  'a consumer is told that its queue is gone': cancelled,
  'a mistake closes the channel and not the connection': mistake,
  'given back and got again': requeued
}

async function main () {
  const connection = await amqp.connect(process.env.AMQP_URL)
  for (const [name, show] of Object.entries(FEATURES)) {
    try {
      await within(show(connection))
      console.log(`PASS ${name}`)
    } catch (error) {
      console.log(`FAIL ${name}: ${error.message.split('\n')[0]}`)
      process.exitCode = 1
    }
  }
  await connection.close()
}

if (process.argv[2] === '--list') {
  console.log(Object.keys(FEATURES).join('\n'))
} else {
  main().catch(error => {
    console.log(`FAIL connecting: ${error.message}`)
    process.exitCode = 1
  })
}
