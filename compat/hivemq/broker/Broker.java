import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * HiveMQ's community edition, on a port of the loopback interface, until it is killed.
 *
 * <p>Broker PORT DIRECTORY, which is empty. Says `ready`.
 */
public class Broker {
    static final String CONFIG =
            "<hivemq><listeners><tcp-listener><port>%s</port>"
                    + "<bind-address>127.0.0.1</bind-address></tcp-listener></listeners>"
                    + "<anonymous-usage-statistics><enabled>false</enabled>"
                    + "</anonymous-usage-statistics></hivemq>";

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[1]);
        Path config = Files.createDirectories(directory.resolve("conf"));
        Files.writeString(config.resolve("config.xml"), CONFIG.formatted(arguments[0]));
        EmbeddedHiveMQ broker =
                EmbeddedHiveMQ.builder()
                        .withConfigurationFolder(config)
                        .withDataFolder(Files.createDirectories(directory.resolve("data")))
                        .withExtensionsFolder(
                                Files.createDirectories(directory.resolve("extensions")))
                        .build();
        broker.start().join();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
