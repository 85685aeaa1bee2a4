// Apache Kafka's own share consumer, one check at a time: java Checks BOOTSTRAP CHECK.
// A check makes its own topic and group, and throws when it does not get what it should.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

public class Checks {
  static final Duration MOMENT = Duration.ofMillis(200);
  static String bootstrap;
  static String topic;
  static String group;
  static Admin admin;

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    String name = arguments[1];
    topic = group = name + "-" + ProcessHandle.current().pid();
    admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    admin.createTopics(List.of(new NewTopic(topic, name.equals("many-partitions") ? 4 : 1, (short) 1))).all().get();
    configure("share.auto.offset.reset", "earliest");
    switch (name) {
      case "ten-consumers" -> eachOnce(10, 5_000);
      case "many-partitions" -> eachOnce(3, 4_000);
      case "release" -> release();
      case "reject" -> reject();
      case "delivery-limit" -> deliveryLimit();
      case "renew" -> renew();
      case "lock-ends" -> lockEnds();
      case "record-limit" -> recordLimit();
      case "transactions" -> transactions();
      case "describe" -> describe();
      case "reset" -> reset();
      default -> throw new IllegalArgumentException(name);
    }
    admin.close();
  }

  static void eachOnce(int consumers, int count) throws Exception {
    produce(count);
    ConcurrentHashMap<String, Integer> seen = new ConcurrentHashMap<>();
    ExecutorService pool = Executors.newFixedThreadPool(consumers);
    List<Future<?>> all = new ArrayList<>();
    AtomicInteger helpers = new AtomicInteger();
    for (int number = 0; number < consumers; number++) {
      all.add(pool.submit(() -> {
        boolean helped = false;
        try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
          long end = System.currentTimeMillis() + 30_000;
          while (seen.size() < count && System.currentTimeMillis() < end) {
            for (ConsumerRecord<String, String> each : consumer.poll(MOMENT)) {
              seen.merge(each.value(), 1, Integer::sum);
              helped = true;
            }
            consumer.commitSync(); // Closing gives back what was polled last.
          }
        }
        if (helped) helpers.incrementAndGet();
      }));
    }
    for (Future<?> each : all) each.get();
    pool.shutdown();
    check(seen.size() == count, "saw " + seen.size() + " of " + count);
    check(seen.values().stream().allMatch(times -> times == 1), "some came twice");
    check(helpers.get() > 0, "nobody got anything");
  }

  static void release() throws Exception {
    produce(3);
    try (KafkaShareConsumer<String, String> consumer = explicit()) {
      for (ConsumerRecord<String, String> each : some(consumer, 3)) {
        check(each.deliveryCount().get() == 1, "the first delivery is " + each.deliveryCount());
        consumer.acknowledge(each, each.value().equals("1") ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
      }
      committed(consumer);
      ConsumerRecord<String, String> again = some(consumer, 1).get(0);
      check(again.value().equals("1"), "again: " + again.value());
      check(again.deliveryCount().get() == 2, "the second delivery is " + again.deliveryCount());
      consumer.acknowledge(again);
      committed(consumer);
      check(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "nothing should be left");
    }
  }

  static void reject() throws Exception {
    String letters = "dlq." + topic;
    configure("errors.deadletterqueue.topic.name", letters);
    produce(2);
    try (KafkaShareConsumer<String, String> consumer = explicit()) {
      for (ConsumerRecord<String, String> each : some(consumer, 2))
        consumer.acknowledge(each, each.value().equals("0") ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
      committed(consumer);
    }
    ConsumerRecord<String, String> letter = read(letters, 1).get(0);
    check("0".equals(letter.value()), "the letter says " + letter.value());
    check(topic.equals(header(letter, "topic")), "it came from " + header(letter, "topic"));
    check("0".equals(header(letter, "offset")), "at " + header(letter, "offset"));
    check(group.equals(header(letter, "group")), "of " + header(letter, "group"));
    check(header(letter, "message").contains("rejected"), header(letter, "message"));
  }

  static void deliveryLimit() throws Exception {
    configure("share.delivery.count.limit", "2");
    produce(1);
    try (KafkaShareConsumer<String, String> consumer = explicit()) {
      for (int times = 1; times <= 2; times++) {
        ConsumerRecord<String, String> each = some(consumer, 1).get(0);
        check(each.deliveryCount().get() == times, "delivery " + each.deliveryCount());
        consumer.acknowledge(each, AcknowledgeType.RELEASE);
        committed(consumer);
      }
      check(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "it came a third time");
    }
  }

  static void renew() throws Exception {
    configure("share.record.lock.duration.ms", "15000");
    produce(1);
    try (KafkaShareConsumer<String, String> consumer = explicit();
        KafkaShareConsumer<String, String> other = explicit()) {
      ConsumerRecord<String, String> each = some(consumer, 1).get(0);
      long start = System.currentTimeMillis();
      while (System.currentTimeMillis() - start < 20_000) {
        consumer.acknowledge(each, AcknowledgeType.RENEW);
        committed(consumer);
        check(other.poll(Duration.ofSeconds(3)).isEmpty(), "the other got it");
        consumer.poll(Duration.ofMillis(1));
      }
      consumer.acknowledge(each, AcknowledgeType.ACCEPT);
      committed(consumer);
    }
  }

  static void lockEnds() throws Exception {
    configure("share.record.lock.duration.ms", "15000");
    produce(1);
    try (KafkaShareConsumer<String, String> slow = explicit();
        KafkaShareConsumer<String, String> other = explicit()) {
      some(slow, 1);
      ConsumerRecord<String, String> each = some(other, 1).get(0);
      check(each.deliveryCount().get() >= 2, "delivery " + each.deliveryCount());
      other.acknowledge(each);
      committed(other);
    }
  }

  static void recordLimit() throws Exception {
    produce(50); // One batch.
    Map<String, Object> options =
        Map.of("share.acquire.mode", "record_limit", "max.poll.records", "7");
    try (KafkaShareConsumer<String, String> consumer = consumer(options)) {
      int seen = 0;
      while (seen < 50) {
        int count = consumer.poll(MOMENT).count();
        check(count <= 7, count + " at once");
        seen += count;
      }
    }
  }

  static void transactions() throws Exception {
    configure("share.isolation.level", "read_committed");
    Map<String, Object> options = options(Map.of("transactional.id", topic));
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      for (int number = 0; number < 4; number++) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
        producer.flush();
        if (number % 2 == 0) producer.abortTransaction();
        else producer.commitTransaction();
      }
    }
    try (KafkaShareConsumer<String, String> consumer = explicit()) {
      List<String> seen = new ArrayList<>();
      for (ConsumerRecord<String, String> each : some(consumer, 2)) {
        seen.add(each.value());
        consumer.acknowledge(each);
      }
      committed(consumer);
      check(seen.equals(List.of("1", "3")), "saw " + seen);
      check(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "there was more");
    }
  }

  static void describe() throws Exception {
    produce(5);
    try (KafkaShareConsumer<String, String> consumer = explicit()) {
      for (ConsumerRecord<String, String> each : some(consumer, 5))
        consumer.acknowledge(each, each.value().equals("2") ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
      committed(consumer);
      ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all().get().get(group);
      check(found.groupState() == GroupState.STABLE, "it is " + found.groupState());
      check(found.members().size() == 1, "members: " + found.members());
      check(!found.members().iterator().next().assignment().topicPartitions().isEmpty(), "no partitions");
    }
    check(start() == 2, "it stands at " + start());
    boolean isListed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
        .anyMatch(each -> each.groupId().equals(group) && each.type().get() == GroupType.SHARE);
    check(isListed, "it is not listed");
    admin.deleteShareGroups(List.of(group)).all().get();
    boolean isGone = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
        .noneMatch(each -> each.groupId().equals(group));
    check(isGone, "it is still listed");
  }

  static void reset() throws Exception {
    produce(5);
    try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
      some(consumer, 5);
      consumer.commitSync();
    }
    check(start() == 5, "it stands at " + start());
    admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 3L)).all().get();
    check(start() == 3, "it was put to " + start());
    try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
      check(some(consumer, 2).get(0).value().equals("3"), "not from there");
    }
  }

  // --- what the checks are made of

  static long start() throws Exception {
    return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
        .partitionsToOffsetInfo(group).get().get(new TopicPartition(topic, 0)).startOffset();
  }

  static Map<String, Object> options(Map<String, Object> more) {
    Map<String, Object> all = new HashMap<>(more);
    all.put("bootstrap.servers", bootstrap);
    return all;
  }

  static KafkaShareConsumer<String, String> consumer(Map<String, Object> more) {
    Map<String, Object> all = options(more);
    all.put("group.id", group);
    KafkaShareConsumer<String, String> made =
        new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    made.subscribe(List.of(topic));
    return made;
  }

  static KafkaShareConsumer<String, String> explicit() {
    return consumer(Map.of("share.acknowledgement.mode", "explicit"));
  }

  static List<ConsumerRecord<String, String>> some(
      KafkaShareConsumer<String, String> consumer, int count) {
    List<ConsumerRecord<String, String>> found = new ArrayList<>();
    long end = System.currentTimeMillis() + 80_000;
    while (found.size() < count && System.currentTimeMillis() < end)
      consumer.poll(MOMENT).forEach(found::add);
    check(found.size() == count, "got " + found.size() + " of " + count);
    return found;
  }

  static void committed(KafkaShareConsumer<String, String> consumer) {
    for (Optional<KafkaException> each : consumer.commitSync().values())
      each.ifPresent(error -> { throw error; });
  }

  static void produce(int count) throws Exception {
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(
        options(Map.of("linger.ms", 50)), new StringSerializer(), new StringSerializer())) {
      for (int number = 0; number < count; number++)
        producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
    }
  }

  static List<ConsumerRecord<String, String>> read(String from, int count) {
    try (KafkaConsumer<String, String> reader = new KafkaConsumer<>(
        options(Map.of("auto.offset.reset", "earliest")), new StringDeserializer(), new StringDeserializer())) {
      TopicPartition place = new TopicPartition(from, 0);
      reader.assign(List.of(place));
      reader.seekToBeginning(List.of(place));
      List<ConsumerRecord<String, String>> found = new ArrayList<>();
      long end = System.currentTimeMillis() + 20_000;
      while (found.size() < count && System.currentTimeMillis() < end)
        reader.poll(MOMENT).forEach(found::add);
      check(found.size() == count, "read " + found.size() + " of " + count);
      return found;
    }
  }

  static String header(ConsumerRecord<String, String> letter, String name) {
    return new String(letter.headers().lastHeader("__dlq.errors." + name).value());
  }

  static void configure(String name, String value) throws Exception {
    ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
    AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
  }

  static void check(boolean isTrue, String otherwise) {
    if (!isTrue) throw new AssertionError(otherwise);
  }
}
