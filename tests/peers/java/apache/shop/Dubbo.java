package shop;

import java.util.HashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.dubbo.common.Version;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.MethodConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.RpcException;
import org.apache.dubbo.rpc.service.EchoService;
import org.apache.dubbo.rpc.service.GenericService;

/** What the peers need of Dubbo 2.7, 3.2 and 3.3 (org.apache.dubbo). Its twin in alibaba/ is for 2.6. */
class Dubbo {
    static final String LINE = Version.getVersion();
    /** Whether this line knows services that return a CompletableFuture. */
    static final boolean FUTURES = true;

    private static final List<ServiceConfig<?>> SERVICES = new ArrayList<>();
    /** One reference per interface, group, version and timeout: Dubbo's are dear. */
    private static final Map<String, Object> REFERENCES = new HashMap<>();

    static <T> void offer(Class<T> type, T shop, String group, String version) {
        ServiceConfig<T> service = new ServiceConfig<>();
        service.setId(type.getSimpleName() + group); // 2.7 takes services without an id for one
        service.setInterface(type);
        service.setRef(shop);
        service.setGroup(group);
        service.setVersion(version);
        if (type == Shop.class) {
            MethodConfig alone = new MethodConfig();
            alone.setName("alone");
            alone.setExecutes(1);
            service.setMethods(new ArrayList<>(List.of(alone)));
        }
        SERVICES.add(service);
    }

    static void serve(int port) {
        ProtocolConfig protocol = new ProtocolConfig("dubbo", port);
        protocol.setHost("127.0.0.1");
        DubboBootstrap bootstrap = DubboBootstrap.getInstance()
            .application(application("shop-provider")).registry(new RegistryConfig("N/A")).protocol(protocol);
        SERVICES.forEach(bootstrap::service);
        bootstrap.start();
    }

    static <T> T refer(Class<T> type, String url, String group, String version, int timeoutMs) {
        String key = type + " " + group + " " + version + " " + timeoutMs;
        return type.cast(REFERENCES.computeIfAbsent(key, k -> {
            ReferenceConfig<T> reference = reference(url, type.getName(), group, version, timeoutMs);
            reference.setInterface(type);
            if (type == Shop.class) {
                MethodConfig note = new MethodConfig();
                note.setName("note");
                note.setReturn(false);
                reference.setMethods(new ArrayList<>(List.of(note, repeated("alone"), repeated("reject"))));
            }
            return get(reference);
        }));
    }

    static Object generic(String url, String service, String method, String[] types, Object[] args) {
        GenericService generic = (GenericService) REFERENCES.computeIfAbsent("generic " + service, k -> {
            ReferenceConfig<GenericService> reference = reference(url, service, null, null, 5000);
            reference.setInterface(service);
            reference.setGeneric("true");
            return get(reference);
        });
        return generic.$invoke(method, types, args);
    }

    static <T> Future<T> async(Callable<T> call) { return RpcContext.getContext().asyncCall(call); }
    static Object echo(Object proxy, Object value) { return ((EchoService) proxy).$echo(value); }
    static void attach(String key, String value) { RpcContext.getContext().setAttachment(key, value); }
    static void detach(String key) { RpcContext.getContext().removeAttachment(key); }
    static String answered(String key) { return RpcContext.getServerContext().getAttachment(key); }
    static void answerAttachment(String key, String value) { RpcContext.getServerContext().setAttachment(key, value); }
    static Map<String, String> requestAttachments() { return new HashMap<>(RpcContext.getContext().getAttachments()); }
    static RuntimeException networkFailure(String why) { return new RpcException(RpcException.NETWORK_EXCEPTION, why); }
    static Object code(Throwable e) { return e instanceof RpcException ? ((RpcException) e).getCode() : "-"; }

    /** A method that a consumer calls again, nine times, if it may; with one direct URL only from 3.2 on. */
    private static MethodConfig repeated(String name) {
        MethodConfig method = new MethodConfig();
        method.setName(name);
        method.setRetries(9);
        return method;
    }

    private static ApplicationConfig application(String name) {
        ApplicationConfig application = new ApplicationConfig(name);
        application.setQosEnable(false);
        return application;
    }

    private static int references;
    private static <T> ReferenceConfig<T> reference(String url, String path, String group, String version, int timeoutMs) {
        ReferenceConfig<T> reference = new ReferenceConfig<>();
        reference.setId("reference" + references++);
        reference.setUrl(url + "/" + path);
        reference.setGroup(group);
        reference.setVersion(version);
        reference.setTimeout(timeoutMs);
        reference.setRetries(0);
        reference.setCheck(false);
        return reference;
    }

    private static boolean started;
    private static <T> T get(ReferenceConfig<T> reference) {
        DubboBootstrap bootstrap = DubboBootstrap.getInstance();
        if (!started) bootstrap.application(application("shop-consumer")).registry(new RegistryConfig("N/A"));
        bootstrap.reference(reference);
        if (!started) bootstrap.start();
        started = true;
        return reference.get();
    }
}
