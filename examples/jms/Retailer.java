import jakarta.jms.*;
import jakarta.jms.Queue;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * A retailer, a vendor and two suppliers, each a program of its own, in seven steps:
 *
 * <p>1 the retailer orders; 2 the vendor takes the order, and 3 asks both suppliers, in one
 * transaction; 4 each supplier takes the request and what it has in stock, answers, and puts back
 * what is left, in one transaction; 5 the vendor takes both answers and the order, and 6 confirms,
 * in one transaction; 7 the retailer takes the confirmation.
 *
 * <p>Whatever a program knows is in messages, so it may be killed anywhere. With a step as the last
 * argument it stops in the middle of that step, says so, and waits to be killed.
 *
 * <p>Retailer ROLE ADDRESS PREFIX [STEP], where PREFIX begins the names of all queues.
 */
public class Retailer {
    static final long WAIT_MS = 20_000;
    static final int[] ORDERS = {5, 12};
    static final Map<String, Integer> STOCK = new LinkedHashMap<>();

    static {
        STOCK.put("cpu", 8);
        STOCK.put("disk", 20);
    }

    static Session session;
    static String prefix;
    static int stop;

    public static void main(String[] arguments) throws Exception {
        prefix = arguments[2];
        stop = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 0;
        Connection connection =
                new JmsConnectionFactory("guest", "guest", arguments[1]).createConnection();
        connection.start();
        session = connection.createSession(true, Session.SESSION_TRANSACTED);
        switch (arguments[0]) {
            case "stock" -> stock();
            case "order" -> order();
            case "request" -> request();
            case "cpu", "disk" -> supply(arguments[0]);
            case "confirm" -> confirm();
            case "confirmed" -> confirmed();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        connection.close();
    }

    static Queue queue(String name) throws Exception { return session.createQueue(prefix + name); }

    static void send(Queue to, MapMessage message) throws Exception {
        session.createProducer(to).send(message);
    }

    static MapMessage take(Queue from, String selector) throws Exception {
        try (MessageConsumer consumer = session.createConsumer(from, selector)) {
            MapMessage found = (MapMessage) consumer.receive(WAIT_MS);
            if (found == null) throw new AssertionError("nothing came from " + from);
            return found;
        }
    }

    /** Waits to be killed, if this is the step to stop in. */
    static void reached(int step) throws Exception {
        if (step != stop) return;
        System.out.println("AT " + step);
        Thread.sleep(600_000);
    }

    static void stock() throws Exception {
        for (Map.Entry<String, Integer> each : STOCK.entrySet()) {
            MapMessage message = session.createMapMessage();
            message.setInt("left", each.getValue());
            send(queue("stock-" + each.getKey()), message);
        }
        session.commit();
    }

    static void order() throws Exception {
        for (int quantity : ORDERS) {
            MapMessage order = session.createMapMessage();
            order.setInt("quantity", quantity);
            order.setJMSReplyTo(queue("confirmations"));
            order.setJMSCorrelationID("order-" + quantity);
            send(queue("orders"), order);
            reached(1);
        }
        session.commit();
    }

    static void request() throws Exception {
        for (int each = 0; each < ORDERS.length; each++) {
            MapMessage order = take(queue("orders"), null);
            reached(2);
            for (String supplier : STOCK.keySet()) {
                MapMessage request = session.createMapMessage();
                request.setInt("quantity", order.getInt("quantity"));
                request.setJMSReplyTo(queue("answers"));
                request.setJMSCorrelationID(order.getJMSCorrelationID());
                send(queue("requests-" + supplier), request);
                reached(3); // One of two is sent.
            }
            MapMessage open = session.createMapMessage();
            open.setInt("quantity", order.getInt("quantity"));
            open.setJMSReplyTo(order.getJMSReplyTo());
            open.setJMSCorrelationID(order.getJMSCorrelationID());
            send(queue("open"), open);
            session.commit();
        }
    }

    static void supply(String supplier) throws Exception {
        for (int each = 0; each < ORDERS.length; each++) {
            MapMessage request = take(queue("requests-" + supplier), null);
            MapMessage stock = take(queue("stock-" + supplier), null);
            int available = Math.min(request.getInt("quantity"), stock.getInt("left"));
            MapMessage answer = session.createMapMessage();
            answer.setInt("available", available);
            answer.setJMSCorrelationID(request.getJMSCorrelationID());
            session.createProducer(request.getJMSReplyTo()).send(answer);
            MapMessage rest = session.createMapMessage();
            rest.setInt("left", stock.getInt("left") - available);
            send(queue("stock-" + supplier), rest);
            reached(4);
            session.commit();
        }
    }

    static void confirm() throws Exception {
        for (int each = 0; each < ORDERS.length; each++) {
            MapMessage first = take(queue("answers"), null);
            reached(5); // One of two has come.
            String number = "JMSCorrelationID = '" + first.getJMSCorrelationID() + "'";
            MapMessage second = take(queue("answers"), number);
            MapMessage order = take(queue("open"), number);
            int quantity = order.getInt("quantity");
            MapMessage confirmation = session.createMapMessage();
            confirmation.setBoolean(
                    "accepted",
                    first.getInt("available") == quantity && second.getInt("available") == quantity);
            confirmation.setInt("quantity", quantity);
            session.createProducer(order.getJMSReplyTo()).send(confirmation);
            reached(6);
            session.commit();
        }
    }

    /** An asynchronous listener takes the confirmations, and commits each. */
    static void confirmed() throws Exception {
        var done = new CountDownLatch(ORDERS.length);
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        session.createConsumer(queue("confirmations")).setMessageListener(message -> {
            try {
                MapMessage each = (MapMessage) message;
                reached(7);
                found.add(each.getInt("quantity") + " " + each.getBoolean("accepted"));
                session.commit();
                done.countDown();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        if (!done.await(WAIT_MS, TimeUnit.MILLISECONDS))
            throw new AssertionError("only " + found);
        Collections.sort(found);
        found.forEach(System.out::println);
    }
}
