import com.rabbitmq.client.ConnectionFactory;

/** Takes one message of the queue that the argument names, and prints it. */
public class Take {
    public static void main(String[] arguments) throws Exception {
        var factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        factory.setVirtualHost("/"); // An address that ends in a slash means another one here.
        try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
            var got = channel.basicGet(arguments[0], false);
            channel.basicAck(got.getEnvelope().getDeliveryTag(), false);
            System.out.println(new String(got.getBody(), "UTF-8"));
        }
    }
}
