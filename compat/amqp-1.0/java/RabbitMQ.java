import com.rabbitmq.client.amqp.*;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.util.concurrent.*;

/**
 * RabbitMQ's own client of AMQP 1.0: publishes to a queue that is there, a message at a time and
 * a thousand at once, and consumes. RabbitMQ HOST PORT QUEUE
 */
public class RabbitMQ {
    static final int COUNT = 1_000;

    public static void main(String[] arguments) throws Exception {
        Environment environment = new AmqpEnvironmentBuilder().build();
        Connection connection =
                environment
                        .connectionBuilder()
                        .host(arguments[0])
                        .port(Integer.parseInt(arguments[1]))
                        .username("guest")
                        .password("guest")
                        .build();
        Publisher publisher = connection.publisherBuilder().queue(arguments[2]).build();
        CountDownLatch accepted = new CountDownLatch(COUNT);
        for (int number = 0; number < COUNT; number++) {
            Message message = publisher.message(("" + number).getBytes());
            message.messageId((long) number).subject("s").property("colour", "blue");
            publisher.publish(
                    message,
                    context -> {
                        if (context.status() == Publisher.Status.ACCEPTED) accepted.countDown();
                    });
        }
        if (!accepted.await(30, TimeUnit.SECONDS)) throw new AssertionError("not all accepted");
        BlockingQueue<String> found = new LinkedBlockingQueue<>();
        Consumer consumer =
                connection
                        .consumerBuilder()
                        .queue(arguments[2])
                        .messageHandler(
                                (context, message) -> {
                                    String text = new String(message.body());
                                    found.add(text + message.subject() + message.property("colour"));
                                    context.accept();
                                })
                        .build();
        for (int number = 0; number < COUNT; number++) {
            String came = found.poll(30, TimeUnit.SECONDS);
            if (!(number + "sblue").equals(came)) throw new AssertionError(number + ": " + came);
        }
        consumer.close();
        connection.close();
        environment.close();
        System.exit(0);
    }
}
