import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3BlockingClient;
import com.hivemq.client.mqtt.mqtt3.Mqtt3Client;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * HiveMQ's client against a broker: `Features HOST PORT` prints PASS or FAIL for each feature,
 * `Features --list` their names.
 */
public class Features {
    interface Feature { void run() throws Exception; }

    static final long WAIT_S = 20;
    static final String RUN = "hivemq-" + ProcessHandle.current().pid();
    static final Map<String, Feature> FEATURES = new LinkedHashMap<>();
    static String host;
    static int port;

    static {
        for (int version : new int[] {3, 5}) {
            String of = "MQTT " + version + ": ";
            FEATURES.put(of + "QoS 0, 1 and 2, a thousand messages each, in order", () -> order(version));
        }
        FEATURES.put("MQTT 3: a session keeps what came meanwhile", Features::session3);
        FEATURES.put("MQTT 5: a session keeps what came meanwhile", Features::session5);
        FEATURES.put("MQTT 5: a retained message, and none when it is cleared", Features::retained);
        FEATURES.put("MQTT 5: a will when the connection breaks", Features::will);
        FEATURES.put("MQTT 5: properties cross", Features::properties);
        FEATURES.put("MQTT 5: a shared subscription deals out", Features::shared);
        FEATURES.put("MQTT 5: nobody subscribed, and is told", Features::nobody);
        FEATURES.put("MQTT 5: a receive maximum holds back", Features::receiveMaximum);
    }

    static void check(boolean is, String otherwise) {
        if (!is) throw new AssertionError(otherwise);
    }

    static Mqtt5BlockingClient five(String name) {
        return Mqtt5Client.builder().identifier(name + RUN).serverHost(host).serverPort(port)
                .buildBlocking();
    }

    static Mqtt3BlockingClient three(String name) {
        return Mqtt3Client.builder().identifier(name + RUN).serverHost(host).serverPort(port)
                .buildBlocking();
    }

    static String next(Mqtt5BlockingClient.Mqtt5Publishes from) throws Exception {
        Mqtt5Publish found = from.receive(WAIT_S, TimeUnit.SECONDS)
                .orElseThrow(() -> new AssertionError("nothing came"));
        return new String(found.getPayloadAsBytes());
    }

    static String next(Mqtt3BlockingClient.Mqtt3Publishes from) throws Exception {
        Mqtt3Publish found = from.receive(WAIT_S, TimeUnit.SECONDS)
                .orElseThrow(() -> new AssertionError("nothing came"));
        return new String(found.getPayloadAsBytes());
    }

    static void order(int version) throws Exception {
        for (MqttQos qos : MqttQos.values()) {
            String topic = RUN + "/order/" + version + "/" + qos.getCode();
            List<String> wanted = new ArrayList<>(), found = new ArrayList<>();
            for (int number = 0; number < 1000; number++) wanted.add("" + number);
            List<CompletableFuture<?>> sent = new ArrayList<>();
            if (version == 3) {
                Mqtt3BlockingClient client = three("order");
                client.connect();
                try (var publishes = client.publishes(MqttGlobalPublishFilter.ALL)) {
                    client.subscribeWith().topicFilter(topic).qos(qos).send();
                    for (String each : wanted)
                        sent.add(client.toAsync().publishWith().topic(topic).qos(qos)
                                .payload(each.getBytes()).send());
                    for (String ignored : wanted) found.add(next(publishes));
                }
                for (CompletableFuture<?> each : sent) each.get(WAIT_S, TimeUnit.SECONDS);
                client.disconnect();
            } else {
                Mqtt5BlockingClient client = five("order");
                client.connect();
                try (var publishes = client.publishes(MqttGlobalPublishFilter.ALL)) {
                    client.subscribeWith().topicFilter(topic).qos(qos).send();
                    for (String each : wanted)
                        sent.add(client.toAsync().publishWith().topic(topic).qos(qos)
                                .payload(each.getBytes()).send());
                    for (String ignored : wanted) found.add(next(publishes));
                }
                for (CompletableFuture<?> each : sent) each.get(WAIT_S, TimeUnit.SECONDS);
                client.disconnect();
            }
            check(found.equals(wanted), qos + ": not in order");
        }
    }

    static void say5(String topic, String text) {
        Mqtt5BlockingClient other = five("other");
        other.connect();
        other.publishWith().topic(topic).qos(MqttQos.EXACTLY_ONCE).payload(text.getBytes()).send();
        other.disconnect();
    }

    static void session3() throws Exception {
        String topic = RUN + "/session3";
        Mqtt3BlockingClient first = three("session");
        first.connectWith().cleanSession(false).send();
        first.subscribeWith().topicFilter(topic).qos(MqttQos.EXACTLY_ONCE).send();
        first.disconnect();
        say5(topic, "meanwhile");
        Mqtt3BlockingClient again = three("session");
        try (var publishes = again.publishes(MqttGlobalPublishFilter.ALL)) {
            check(again.connectWith().cleanSession(false).send().isSessionPresent(), "no session");
            check(next(publishes).equals("meanwhile"), "another message");
        }
        again.disconnect();
    }

    static void session5() throws Exception {
        String topic = RUN + "/session5";
        Mqtt5BlockingClient first = five("session");
        first.connectWith().cleanStart(false).sessionExpiryInterval(600).send();
        first.subscribeWith().topicFilter(topic).qos(MqttQos.EXACTLY_ONCE).send();
        first.disconnectWith().sessionExpiryInterval(600).send();
        say5(topic, "meanwhile");
        Mqtt5BlockingClient again = five("session");
        try (var publishes = again.publishes(MqttGlobalPublishFilter.ALL)) {
            check(again.connectWith().cleanStart(false).send().isSessionPresent(), "no session");
            check(next(publishes).equals("meanwhile"), "another message");
        }
        again.disconnect();
    }

    static void retained() throws Exception {
        String topic = RUN + "/retained";
        Mqtt5BlockingClient client = five("retained");
        client.connect();
        client.publishWith().topic(topic).qos(MqttQos.AT_LEAST_ONCE).retain(true)
                .payload("state".getBytes()).send();
        try (var publishes = client.publishes(MqttGlobalPublishFilter.ALL)) {
            client.subscribeWith().topicFilter(topic).send();
            check(next(publishes).equals("state"), "another message");
            client.unsubscribeWith().topicFilter(topic).send();
            client.publishWith().topic(topic).qos(MqttQos.AT_LEAST_ONCE).retain(true).send();
            client.subscribeWith().topicFilter(topic).send();
            check(publishes.receive(500, TimeUnit.MILLISECONDS).isEmpty(), "it is still there");
        }
        client.disconnect();
    }

    static void will() throws Exception {
        String topic = RUN + "/will";
        Mqtt5BlockingClient witness = five("witness");
        witness.connect();
        try (var publishes = witness.publishes(MqttGlobalPublishFilter.ALL)) {
            witness.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send();
            Mqtt5BlockingClient dying = five("dying");
            dying.connectWith().willPublish().topic(topic).payload("gone".getBytes())
                    .applyWillPublish().send();
            Mqtt5BlockingClient thief = five("dying"); // Its connection ends without a word.
            thief.connect();
            check(next(publishes).equals("gone"), "another message");
            thief.disconnect();
        }
        witness.disconnect();
    }

    static void properties() throws Exception {
        String topic = RUN + "/properties";
        Mqtt5BlockingClient client = five("properties");
        client.connect();
        try (var publishes = client.publishes(MqttGlobalPublishFilter.ALL)) {
            client.subscribeWith().topicFilter(topic).qos(MqttQos.EXACTLY_ONCE).send();
            client.publishWith().topic(topic).qos(MqttQos.EXACTLY_ONCE)
                    .payload("all".getBytes()).contentType("text/plain").responseTopic("answers")
                    .correlationData("c-1".getBytes()).messageExpiryInterval(100)
                    .userProperties().add("colour", "blue").add("colour", "red")
                    .applyUserProperties().send();
            Mqtt5Publish found = publishes.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow();
            check(found.getContentType().get().toString().equals("text/plain"), "content type");
            check(found.getResponseTopic().get().toString().equals("answers"), "response topic");
            check(found.getCorrelationData().get().remaining() == 3, "correlation data");
            check(found.getMessageExpiryInterval().getAsLong() <= 100, "expiry");
            check(found.getUserProperties().asList().size() == 2, "user properties");
        }
        client.disconnect();
    }

    static void shared() throws Exception {
        String filter = "$share/" + RUN + "/" + RUN + "/shared";
        Mqtt5BlockingClient[] members = {five("one"), five("two")};
        List<Mqtt5BlockingClient.Mqtt5Publishes> publishes = new ArrayList<>();
        for (Mqtt5BlockingClient member : members) {
            member.connect();
            publishes.add(member.publishes(MqttGlobalPublishFilter.ALL));
            member.subscribeWith().topicFilter(filter).qos(MqttQos.AT_LEAST_ONCE).send();
        }
        for (int number = 0; number < 20; number++) say5(RUN + "/shared", "" + number);
        Set<String> found = new HashSet<>();
        int[] counts = {0, 0};
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (counts[0] + counts[1] < 20 && System.nanoTime() < deadline)
            for (int place = 0; place < 2; place++) {
                var one = publishes.get(place).receive(100, TimeUnit.MILLISECONDS);
                if (one.isPresent()) {
                    found.add(new String(one.get().getPayloadAsBytes()));
                    counts[place]++;
                }
            }
        check(found.size() == 20 && counts[0] + counts[1] == 20, "not once each");
        check(counts[0] > 0 && counts[1] > 0, "one got all");
        for (Mqtt5BlockingClient member : members) member.disconnect();
    }

    static void nobody() throws Exception {
        Mqtt5BlockingClient client = five("nobody");
        client.connect();
        Mqtt5PublishResult result = client.publishWith().topic(RUN + "/nobody")
                .qos(MqttQos.AT_LEAST_ONCE).payload("x".getBytes()).send();
        var ack = ((Mqtt5PublishResult.Mqtt5Qos1Result) result).getPubAck();
        check(ack.getReasonCode() == Mqtt5PubAckReasonCode.NO_MATCHING_SUBSCRIBERS, "" + ack);
        client.disconnect();
    }

    static void receiveMaximum() throws Exception {
        String topic = RUN + "/maximum";
        Mqtt5BlockingClient client = five("maximum");
        client.connectWith().restrictions().receiveMaximum(3).applyRestrictions().send();
        try (var publishes = client.publishes(MqttGlobalPublishFilter.ALL, true)) {
            client.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send();
            for (int number = 0; number < 10; number++) say5(topic, "" + number);
            List<Mqtt5Publish> held = new ArrayList<>();
            for (int number = 0; number < 3; number++)
                held.add(publishes.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow());
            check(publishes.receive(500, TimeUnit.MILLISECONDS).isEmpty(), "more than three");
            for (int number = 3; number < 10; number++) {
                held.get(number - 3).acknowledge();
                held.add(publishes.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow());
            }
            for (int number = 0; number < 10; number++)
                check(new String(held.get(number).getPayloadAsBytes()).equals("" + number), "order");
        }
        client.disconnect();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--list")) {
            FEATURES.keySet().forEach(System.out::println);
            return;
        }
        host = arguments[0];
        port = Integer.parseInt(arguments[1]);
        for (var each : FEATURES.entrySet()) {
            try {
                each.getValue().run();
                System.out.println("PASS " + each.getKey());
            } catch (Throwable error) {
                System.out.println("FAIL " + each.getKey() + ": " + error);
            }
        }
        System.exit(0);
    }
}
