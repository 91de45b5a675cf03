// A worker that copies records with KafkaJS, each batch of a partition in one transaction: see tests/clients/copying.py.
//
// The command `hold` makes the worker wait in its next transaction, after it has sent the offsets. It continues with the
// command `resume`. The end of stdin ends the worker, because its parent process has ended.

import { createInterface } from "node:readline";

import kafkajs from "kafkajs";

const RECORDS_MAX = 20;
const FETCH_MS = 200; // KafkaJS sends heartbeats between its fetches

const config = JSON.parse(process.argv[2]);

const tell = (event, fields) => process.stdout.write(JSON.stringify({ event, ...fields }) + "\n");

const toStderr = () => ({ label, namespace, log }) =>
  process.stderr.write(`${log.timestamp} ${label} ${namespace} ${log.message} ${log.error ?? ""}\n`);

const kafka = new kafkajs.Kafka({
  brokers: [config.bootstrap],
  clientId: config.client_id,
  requestTimeout: config.socket_ms,
  logCreator: toStderr,
});
const producer = kafka.producer({
  transactionalId: config.transactional_id,
  transactionTimeout: config.transaction_ms,
  idempotent: true,
  maxInFlightRequests: 1,
});
const consumer = kafka.consumer({
  groupId: config.group,
  sessionTimeout: config.session_ms,
  heartbeatInterval: config.heartbeat_ms,
  metadataMaxAge: config.metadata_ms,
  maxWaitTimeInMs: FETCH_MS,
});

let holds = false;
let resume = () => {};

async function copyBatch({ batch, resolveOffset, heartbeat, isRunning, isStale }) {
  for (let from = 0; from < batch.messages.length && isRunning() && !isStale(); from += RECORDS_MAX) {
    const messages = batch.messages.slice(from, from + RECORDS_MAX);
    await copyInTransaction(batch.topic, batch.partition, messages);
    resolveOffset(messages.at(-1).offset);
    await heartbeat();
  }
}

async function copyInTransaction(topic, partition, messages) {
  const offset = String(Number(messages.at(-1).offset) + 1);
  const transaction = await producer.transaction();
  try {
    await transaction.send({
      topic: config.sink,
      messages: messages.map(({ value }) => ({ value, partition })),
    });
    await transaction.sendOffsets({
      consumerGroupId: config.group,
      topics: [{ topic, partitions: [{ partition, offset }] }],
    });
    if (holds) {
      holds = false;
      tell("held");
      await new Promise((resolve) => (resume = resolve));
    }
    await transaction.commit();
  } catch (error) {
    tell("error", { error: String(error) });
    await transaction.abort();
    throw error;
  }
  tell("records", { partition: [topic, partition], offsets: messages.map((message) => Number(message.offset)) });
  tell("committed", { offsets: [[topic, partition, Number(offset)]] });
}

async function close() {
  await consumer.disconnect();
  await producer.disconnect();
  process.exit(0);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

let owned = [];
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  tell("revoked", { partitions: owned });
  owned = Object.entries(payload.memberAssignment).flatMap(([topic, of]) => of.map((number) => [topic, number]));
  tell("assigned", { partitions: owned });
});
consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || fail(payload.error));

createInterface({ input: process.stdin })
  .on("line", (order) => {
    if (order === "hold") holds = true;
    if (order === "resume") resume();
    if (order === "close") close().catch(fail);
  })
  .on("close", () => process.exit(1));

await producer.connect();
await consumer.connect();
await consumer.subscribe({ topics: config.topics, fromBeginning: true });
await consumer.run({ eachBatch: copyBatch, eachBatchAutoResolve: false, autoCommit: false });
