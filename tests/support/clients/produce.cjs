// Produces the records described on standard input with KafkaJS and its default partitioner, and prints partition and
// offset of each. Arguments: folder of KafkaJS, bootstrap servers, topic. foreign_clients.py describes the input lines.
const [, , library, bootstrap, topic] = process.argv;
process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const { Kafka, logLevel } = require(library);

const bytes = (word) => (word === "null" ? null : Buffer.from(word.slice(1), "hex"));

// KafkaJS expects headers as an object, with an array for a repeated name.
const addHeader = (headers, name, value) =>
  name in headers ? (headers[name] = [].concat(headers[name], [value])) : (headers[name] = value);

async function main() {
  const lines = require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean);
  const producer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).producer();
  await producer.connect();
  let message = { headers: {} };
  for (const line of lines) {
    const [what, first, second] = line.split(" ");
    if (what === "key" || what === "value") message[what] = bytes(first);
    else if (what === "header") addHeader(message.headers, first, bytes(second));
    else {
      const [sent] = await producer.send({ topic, messages: [message] });
      console.log(`${sent.partition} ${sent.baseOffset}`);
      message = { headers: {} };
    }
  }
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
