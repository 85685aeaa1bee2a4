// What kafkajs does with a broker. Each prints PASS and its name, or FAIL and what happened.
// With --list only their names.
'use strict'

const { Kafka, CompressionTypes, logLevel } = require('kafkajs')
const assert = require('assert')

const PATIENCE_MS = 60000

const kafka = new Kafka({ brokers: [process.env.BOOTSTRAP], logLevel: logLevel.NOTHING })

async function create (topic, numPartitions) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: true })
  await admin.disconnect()
}

async function send (topic, values, settings = {}) {
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  const messages = values.map(value => ({ key: value, value, headers: { from: 'kafkajs' } }))
  await producer.send({ topic, messages, acks: -1, ...settings })
  await producer.disconnect()
}

// The messages of a group's one member, until there are so many.
async function read (groupId, topic, count) {
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${found.length} came`)), PATIENCE_MS)
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(message)
        if (found.length === count) { clearTimeout(timer); resolve() }
      }
    })
  })
  await consumer.disconnect()
  return found
}

async function roundTrip () {
  await create('kafkajs-round-trip', 1)
  await send('kafkajs-round-trip', ['a'])
  await send('kafkajs-round-trip', ['b'], { compression: CompressionTypes.GZIP })
  const found = await read('kafkajs-round-trip', 'kafkajs-round-trip', 2)
  assert.deepStrictEqual(found.map(each => each.value.toString()), ['a', 'b'])
  assert.strictEqual(found[0].key.toString(), 'a')
  assert.strictEqual(found[0].headers.from.toString(), 'kafkajs')
}

async function group () {
  await create('kafkajs-group', 2)
  await send('kafkajs-group', ['a', 'b', 'c'])
  await read('kafkajs-group', 'kafkajs-group', 3)
  await send('kafkajs-group', ['d'])
  const found = await read('kafkajs-group', 'kafkajs-group', 1)
  assert.deepStrictEqual(found.map(each => each.value.toString()), ['d'])
}

async function transactions () {
  await create('kafkajs-tx', 1)
  const producer = kafka.producer({ transactionalId: 'kafkajs-tx', maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (const value of ['kept', 'dropped', 'last']) {
    const transaction = await producer.transaction()
    await transaction.send({ topic: 'kafkajs-tx', messages: [{ value }] })
    await (value === 'dropped' ? transaction.abort() : transaction.commit())
  }
  await producer.disconnect()
  const found = await read('kafkajs-tx', 'kafkajs-tx', 2)
  assert.deepStrictEqual(found.map(each => each.value.toString()), ['kept', 'last'])
}

async function administer () {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic: 'kafkajs-admin', numPartitions: 3 }] })
  const { topics } = await admin.fetchTopicMetadata({ topics: ['kafkajs-admin'] })
  assert.strictEqual(topics[0].partitions.length, 3)
  const { brokers } = await admin.describeCluster()
  assert.strictEqual(brokers.length, 1)
  await admin.deleteTopics({ topics: ['kafkajs-admin'] })
  assert(!(await admin.listTopics()).includes('kafkajs-admin'))
  await admin.disconnect()
}

const FEATURES = {
  'keys, headers and compression': roundTrip,
  'a group goes on where it was': group,
  transactions,
  'an administrator': administer
}

async function main () {
  for (const [name, run] of Object.entries(FEATURES)) {
    if (process.argv.includes('--list')) {
      console.log(name)
      continue
    }
    try {
      await run()
      console.log(`PASS ${name}`)
    } catch (error) {
      console.log(`FAIL ${name}: ${error.message}`)
    }
  }
  process.exit(0)
}

main()
