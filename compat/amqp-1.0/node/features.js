// What rhea does with a broker. Each prints PASS and its name, or FAIL and what happened.
// With --list only their names.
'use strict'

const assert = require('assert')
const rhea = require('rhea')

const PATIENCE_MS = 10000

function within (promise) {
  let timer
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error('nothing happened')), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const name = what => `rhea-${what}-${process.hrtime.bigint()}`

function send (connection, address, ...messages) {
  const sender = connection.open_sender(address)
  let settled = 0
  return new Promise((resolve, reject) => {
    sender.on('sender_error', context => reject(context.sender.error))
    sender.once('sendable', () => messages.forEach(each => sender.send(each)))
    sender.on('accepted', () => { if (++settled === messages.length) resolve() })
    sender.on('released', () => reject(new Error('released')))
  })
}

async function queue (connection) {
  const address = name('queue')
  const bodies = Array.from({ length: 1000 }, (_, number) => `message ${number}`)
  await send(connection, address, ...bodies.map(body => ({ body, durable: true })))
  const got = []
  await new Promise(resolve => {
    const receiver = connection.open_receiver({ source: address, credit_window: 50 })
    receiver.on('message', context => {
      got.push(context.message.body)
      if (got.length === bodies.length) resolve()
    })
  })
  assert.deepStrictEqual(got, bodies)
}

async function properties (connection) {
  const address = name('properties')
  await send(connection, address, {
    body: { list: [1, 'two'], map: { three: 3 } },
    message_id: 'first',
    correlation_id: 'question',
    content_type: 'text/plain',
    subject: 'a subject',
    application_properties: { colour: 'blue', count: 7 }
  })
  const message = await new Promise(resolve => {
    connection.open_receiver(address).on('message', context => resolve(context.message))
  })
  assert.deepStrictEqual(message.body, { list: [1, 'two'], map: { three: 3 } })
  assert.strictEqual(message.message_id, 'first')
  assert.strictEqual(message.correlation_id, 'question')
  assert.strictEqual(message.subject, 'a subject')
  assert.deepStrictEqual(message.application_properties, { colour: 'blue', count: 7 })
}

// One message only: rhea takes an accepted and a released one next to each other for one range.
async function settling (connection) {
  const address = name('settling')
  await send(connection, address, { body: 'once more', durable: true })
  const counts = []
  await new Promise(resolve => {
    const receiver = connection.open_receiver({ source: address, autoaccept: false })
    receiver.on('message', context => {
      counts.push(context.message.delivery_count || 0)
      if (counts.length === 1) context.delivery.release()
      else resolve(context.delivery.accept())
    })
  })
  assert.deepStrictEqual(counts, [0, 0])
}

async function draining (connection) {
  const address = name('draining')
  await send(connection, address, { body: 'only one' })
  const receiver = connection.open_receiver({ source: address, credit_window: 0 })
  const got = []
  receiver.on('message', context => got.push(context.message.body))
  await new Promise(resolve => receiver.once('receiver_open', resolve))
  const drained = new Promise(resolve => receiver.once('receiver_drained', resolve))
  receiver.drain_credit()
  receiver.add_credit(10)
  await drained
  assert.deepStrictEqual(got, ['only one'])
}

async function missing (connection) {
  const error = await new Promise(resolve => {
    const receiver = connection.open_receiver('/queues/' + name('missing'))
    receiver.on('receiver_error', context => resolve(context.receiver.error))
  })
  assert.strictEqual(error.condition, 'amqp:not-found')
}

async function large (connection) {
  const address = name('large')
  const body = Buffer.alloc(3000000, 'x')
  await send(connection, address, { body })
  const message = await new Promise(resolve => {
    connection.open_receiver(address).on('message', context => resolve(context.message))
  })
  assert(Buffer.from(message.body).equals(body))
}

const FEATURES = {
  'a queue, a thousand messages in order': queue,
  'properties and bodies of any type': properties,
  'released messages come again': settling,
  'credit is drained': draining,
  'a queue that does not exist is not found': missing,
  'a message of three megabytes': large
}

async function main () {
  if (process.argv[2] === '--list') {
    Object.keys(FEATURES).forEach(each => console.log(each))
    return
  }
  const [host, port] = process.env.AMQP.split(':')
  for (const [feature, run] of Object.entries(FEATURES)) {
    const options = { host, port: Number(port), username: 'guest', password: 'guest', reconnect: false }
    const connection = rhea.create_container().connect(options)
    connection.on('disconnected', () => {})
    connection.on('connection_error', () => {})
    try {
      await within(run(connection))
      console.log(`PASS ${feature}`)
    } catch (error) {
      console.log(`FAIL ${feature}: ${error}`)
    }
    connection.close()
  }
  process.exit(0)
}

main()
