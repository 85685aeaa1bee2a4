import jakarta.jms.*;
import jakarta.jms.Queue;
import java.util.*;
import java.util.concurrent.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What a program for JMS does, through Apache Qpid JMS. Prints PASS or FAIL for each check. */
public class Jms {
    static final long WAIT_MS = 10_000;
    static JmsConnectionFactory factory;

    interface Check { void run(Connection connection) throws Exception; }

    public static void main(String[] arguments) throws Exception {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("JMS: a queue, texts, bytes, maps and properties", Jms::queue);
        checks.put("JMS: a listener on a topic", Jms::topic);
        checks.put("JMS: a durable subscription keeps what comes, until it is ended", Jms::durable);
        checks.put("JMS: a request and its reply by a temporary queue", Jms::reply);
        checks.put("JMS: what is not acknowledged comes again", Jms::recover);
        checks.put("JMS: a transaction is rolled back, and committed", Jms::transacted);
        checks.put("JMS: the retailer, the vendor and two suppliers, in seven steps", Jms::retailer);
        checks.put("JMS: time to live and priority are told", Jms::header);
        checks.put("JMS: a selector, on a queue and on a topic", Jms::selector);
        checks.put("JMS: a browser leaves what it sees", Jms::browser);
        if (arguments[0].equals("--list")) {
            checks.keySet().forEach(System.out::println);
            return;
        }
        factory = new JmsConnectionFactory("guest", "guest", arguments[0]);
        for (Map.Entry<String, Check> each : checks.entrySet()) {
            try (Connection connection = factory.createConnection()) {
                connection.start();
                each.getValue().run(connection);
                System.out.println("PASS " + each.getKey());
            } catch (Throwable error) {
                System.out.println("FAIL " + each.getKey() + ": " + error);
            }
        }
        System.exit(0);
    }

    static void same(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) throw new AssertionError(found + ", not " + wanted);
    }

    static String text(Message message) throws Exception {
        if (message == null) throw new AssertionError("nothing came");
        return ((TextMessage) message).getText();
    }

    static String name(String what) { return "jms-" + what + "-" + System.nanoTime(); }

    static void queue(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name("queue"));
        MessageProducer producer = session.createProducer(queue);
        TextMessage text = session.createTextMessage("a text, é");
        text.setJMSCorrelationID("question");
        text.setJMSType("kind");
        text.setStringProperty("colour", "blue");
        text.setIntProperty("count", 7);
        producer.send(text);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[300_000]);
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setInt("n", 5);
        producer.send(map);
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = consumer.receive(WAIT_MS);
        same("a text, é", text(first));
        same("question", first.getJMSCorrelationID());
        same("kind", first.getJMSType());
        same("blue", first.getStringProperty("colour"));
        same(7, first.getIntProperty("count"));
        same(300_000L, ((BytesMessage) consumer.receive(WAIT_MS)).getBodyLength());
        same(5, ((MapMessage) consumer.receive(WAIT_MS)).getInt("n"));
        same(null, consumer.receiveNoWait());
    }

    static void selector(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name("selected"));
        Topic topic = session.createTopic(name("selected"));
        MessageConsumer news = session.createConsumer(topic, "price < 100 AND company = 'Telco'");
        for (Destination each : new Destination[] {queue, topic}) {
            MessageProducer producer = session.createProducer(each);
            for (int price : new int[] {120, 90, 80}) {
                TextMessage message = session.createTextMessage("at " + price);
                message.setIntProperty("price", price);
                message.setStringProperty("company", price == 80 ? "Other" : "Telco");
                message.setJMSType("quote");
                producer.send(message);
            }
        }
        same("at 90", text(news.receive(WAIT_MS)));
        same(null, news.receiveNoWait());
        String telco = "JMSType = 'quote' AND company LIKE 'Tel%' AND price BETWEEN 50 AND 100";
        MessageConsumer some = session.createConsumer(queue, telco);
        same("at 90", text(some.receive(WAIT_MS)));
        same(null, some.receiveNoWait());
        some.close();
        MessageConsumer rest = session.createConsumer(queue);
        same("at 120", text(rest.receive(WAIT_MS)));
        same("at 80", text(rest.receive(WAIT_MS)));
        try {
            session.createConsumer(queue, "price <");
            throw new AssertionError("a selector with a mistake was taken");
        } catch (InvalidSelectorException expected) {
        }
    }

    static void browser(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name("browsed"));
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 5; number++) {
            producer.send(session.createTextMessage("" + number));
        }
        StringBuilder seen = new StringBuilder();
        Enumeration<?> found = session.createBrowser(queue).getEnumeration();
        while (found.hasMoreElements()) seen.append(text((Message) found.nextElement()));
        same("01234", seen.toString());
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 5; number++) same("" + number, text(consumer.receive(WAIT_MS)));
    }

    static void topic(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(name("topic"));
        BlockingQueue<Message> heard = new LinkedBlockingQueue<>();
        session.createConsumer(topic).setMessageListener(heard::add);
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer second = other.createConsumer(topic);
        Session third = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        third.createProducer(topic).send(third.createTextMessage("news"));
        same("news", text(heard.poll(WAIT_MS, TimeUnit.MILLISECONDS)));
        same("news", text(second.receive(WAIT_MS)));
    }

    static void durable(Connection ignored) throws Exception {
        String id = name("client"), where = name("durable");
        for (int round = 0; round < 2; round++) {
            try (Connection connection = factory.createConnection()) {
                connection.setClientID(id);
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                Topic topic = session.createTopic(where);
                MessageConsumer consumer = session.createDurableSubscriber(topic, "kept");
                if (round == 1) same("while it was away", text(consumer.receive(WAIT_MS)));
                consumer.close();
                if (round == 1) session.unsubscribe("kept");
            }
            try (Connection connection = factory.createConnection()) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                Topic topic = session.createTopic(where);
                session.createProducer(topic).send(session.createTextMessage("while it was away"));
            }
        }
        try (Connection connection = factory.createConnection()) {
            connection.setClientID(id);
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic(where);
            same(null, session.createDurableSubscriber(topic, "kept").receive(500));
        }
    }

    static void reply(Connection connection) throws Exception {
        String where = name("requests");
        Session server = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        server.createConsumer(server.createQueue(where)).setMessageListener(message -> {
            try {
                TextMessage answer = server.createTextMessage("re: " + text(message));
                answer.setJMSCorrelationID(message.getJMSMessageID());
                server.createProducer(message.getJMSReplyTo()).send(answer);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        Session client = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        TemporaryQueue replies = client.createTemporaryQueue();
        TextMessage question = client.createTextMessage("what time is it?");
        question.setJMSReplyTo(replies);
        client.createProducer(client.createQueue(where)).send(question);
        Message answer = client.createConsumer(replies).receive(WAIT_MS);
        same("re: what time is it?", text(answer));
        same(question.getJMSMessageID(), answer.getJMSCorrelationID());
    }

    static void recover(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name("recover"));
        session.createProducer(queue).send(session.createTextMessage("again"));
        MessageConsumer consumer = session.createConsumer(queue);
        same("again", text(consumer.receive(WAIT_MS)));
        session.recover();
        Message second = consumer.receive(WAIT_MS);
        same("again", text(second));
        same(true, second.getJMSRedelivered());
        session.close();
        Session next = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Message third = next.createConsumer(queue).receive(WAIT_MS);
        same("again", text(third));
        third.acknowledge();
    }

    static void transacted(Connection connection) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue in = session.createQueue(name("in")), out = session.createQueue(name("out"));
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        other.createProducer(in).send(other.createTextMessage("order"));
        MessageConsumer consumer = session.createConsumer(in), results = other.createConsumer(out);
        for (String fate : List.of("rolled back", "committed")) {
            Message order = consumer.receive(WAIT_MS);
            same("order", text(order));
            session.createProducer(out).send(session.createTextMessage(fate));
            if (fate.equals("committed")) session.commit(); else session.rollback();
        }
        same("committed", text(results.receive(WAIT_MS)));
        same(null, results.receive(300));
        same(null, consumer.receive(300));
    }

    /** One receive and several sends in one transaction; a rollback is tried again. */
    static void retailer(Connection connection) throws Exception {
        String orders = name("vendor-orders");
        String[] parts = {name("supplier-cpu"), name("supplier-disk")};
        BlockingQueue<String> problems = new LinkedBlockingQueue<>();
        for (int each = 0; each < 2; each++) supplier(connection, parts[each], each == 0 ? 8 : 20);
        vendor(connection, orders, parts, problems);
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        // 1: the retailer orders, and says where to answer.
        TemporaryQueue confirmations = session.createTemporaryQueue();
        MessageConsumer confirmed = session.createConsumer(confirmations);
        int[] wanted = {5, 12};
        for (int quantity : wanted) {
            MapMessage order = session.createMapMessage();
            order.setInt("quantity", quantity);
            order.setJMSReplyTo(confirmations);
            session.createProducer(session.createQueue(orders)).send(order);
        }
        // 7: the retailer gets the confirmations: the second order is more than there is.
        MapMessage first = (MapMessage) confirmed.receive(WAIT_MS);
        MapMessage second = (MapMessage) confirmed.receive(WAIT_MS);
        same(true, first.getBoolean("accepted"));
        same(false, second.getBoolean("accepted"));
        same(null, problems.poll());
    }

    static void supplier(Connection connection, String where, int stock) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        int[] left = {stock};
        session.createConsumer(session.createQueue(where)).setMessageListener(message -> {
            try { // 4: each supplier takes an order and answers, in one transaction.
                int quantity = ((MapMessage) message).getInt("quantity");
                MapMessage answer = session.createMapMessage();
                answer.setInt("available", Math.min(quantity, left[0]));
                left[0] -= Math.min(quantity, left[0]);
                answer.setJMSCorrelationID(message.getJMSCorrelationID());
                session.createProducer(message.getJMSReplyTo()).send(answer);
                session.commit();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
    }

    static void vendor(
            Connection connection, String orders, String[] parts, BlockingQueue<String> problems)
            throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue answers = session.createQueue(name("vendor-answers"));
        Map<String, Message> open = new ConcurrentHashMap<>();
        boolean[] hasFailed = {false};
        session.createConsumer(session.createQueue(orders)).setMessageListener(message -> {
            try { // 2, 3: one receive and two sends, all or nothing; the first try fails.
                String number = message.getJMSMessageID();
                for (String part : parts) {
                    MapMessage request = session.createMapMessage();
                    request.setInt("quantity", ((MapMessage) message).getInt("quantity"));
                    request.setJMSReplyTo(answers);
                    request.setJMSCorrelationID(number);
                    session.createProducer(session.createQueue(part)).send(request);
                }
                if (!hasFailed[0]) {
                    hasFailed[0] = true;
                    session.rollback();
                    return;
                }
                open.put(number, message);
                session.commit();
            } catch (Exception error) {
                problems.add(error.toString());
            }
        });
        Session confirming = connection.createSession(true, Session.SESSION_TRANSACTED);
        Map<String, List<Integer>> found = new HashMap<>();
        confirming.createConsumer(answers).setMessageListener(message -> {
            try { // 5, 6: with both answers the vendor confirms, asynchronously.
                String number = message.getJMSCorrelationID();
                List<Integer> both = found.computeIfAbsent(number, key -> new ArrayList<>());
                both.add(((MapMessage) message).getInt("available"));
                if (both.size() == 2) {
                    Message order = open.get(number);
                    int quantity = ((MapMessage) order).getInt("quantity");
                    MapMessage confirmation = confirming.createMapMessage();
                    confirmation.setBoolean(
                            "accepted", both.stream().allMatch(each -> each == quantity));
                    confirming.createProducer(order.getJMSReplyTo()).send(confirmation);
                }
                if (both.size() > 2) problems.add("an order was sent twice");
                confirming.commit();
            } catch (Exception error) {
                problems.add(error.toString());
            }
        });
    }

    static void header(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name("header"));
        MessageProducer producer = session.createProducer(queue);
        TextMessage short_lived = session.createTextMessage("gone");
        producer.send(short_lived, DeliveryMode.PERSISTENT, 4, 50);
        Thread.sleep(300);
        producer.send(session.createTextMessage("there"), DeliveryMode.PERSISTENT, 9, 60_000);
        Message found = session.createConsumer(queue).receive(WAIT_MS);
        same("there", text(found));
        same(9, found.getJMSPriority());
        same(DeliveryMode.PERSISTENT, found.getJMSDeliveryMode());
    }
}
