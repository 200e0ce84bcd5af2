package shop;

import com.alibaba.dubbo.common.Version;
import com.alibaba.dubbo.config.ApplicationConfig;
import com.alibaba.dubbo.config.MethodConfig;
import com.alibaba.dubbo.config.ProtocolConfig;
import com.alibaba.dubbo.config.ReferenceConfig;
import com.alibaba.dubbo.config.RegistryConfig;
import com.alibaba.dubbo.config.ServiceConfig;
import com.alibaba.dubbo.rpc.RpcContext;
import com.alibaba.dubbo.rpc.RpcException;
import com.alibaba.dubbo.rpc.service.EchoService;
import com.alibaba.dubbo.rpc.service.GenericService;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;

/** What the peers need of Dubbo 2.6 (com.alibaba.dubbo). Its twin in apache/ is for 2.7 and up. */
class Dubbo {
    static final String LINE = Version.getVersion();
    /** Whether this line knows services that return a CompletableFuture. */
    static final boolean FUTURES = false;

    private static final List<ServiceConfig<?>> SERVICES = new ArrayList<>();
    /** One reference per interface, group, version and timeout: Dubbo's are dear. */
    private static final Map<String, Object> REFERENCES = new HashMap<>();

    static <T> void offer(Class<T> type, T shop, String group, String version) {
        ServiceConfig<T> service = new ServiceConfig<>();
        service.setInterface(type);
        service.setRef(shop);
        service.setGroup(group);
        service.setVersion(version);
        MethodConfig alone = new MethodConfig();
        alone.setName("alone");
        alone.setExecutes(1);
        service.setMethods(new ArrayList<>(List.of(alone)));
        SERVICES.add(service);
    }

    static void serve(int port) {
        ProtocolConfig protocol = new ProtocolConfig("dubbo", port);
        protocol.setHost("127.0.0.1");
        for (ServiceConfig<?> service : SERVICES) {
            service.setApplication(application("shop-provider"));
            service.setRegistry(new RegistryConfig("N/A"));
            service.setProtocol(protocol);
            service.export();
        }
    }

    static <T> T refer(Class<T> type, String url, String group, String version, int timeoutMs) {
        String key = type + " " + group + " " + version + " " + timeoutMs;
        return type.cast(REFERENCES.computeIfAbsent(key, k -> {
            ReferenceConfig<T> reference = reference(url, type.getName(), group, version, timeoutMs);
            reference.setInterface(type);
            MethodConfig note = new MethodConfig();
            note.setName("note");
            note.setReturn(false);
            reference.setMethods(new ArrayList<>(List.of(note, repeated("alone"), repeated("reject"))));
            return reference.get();
        }));
    }

    static Object generic(String url, String service, String method, String[] types, Object[] args) {
        GenericService generic = (GenericService) REFERENCES.computeIfAbsent("generic " + service, k -> {
            ReferenceConfig<GenericService> reference = reference(url, service, null, null, 5000);
            reference.setInterface(service);
            reference.setGeneric(true);
            return reference.get();
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

    private static <T> ReferenceConfig<T> reference(String url, String path, String group, String version, int timeoutMs) {
        ReferenceConfig<T> reference = new ReferenceConfig<>();
        reference.setApplication(application("shop-consumer"));
        reference.setRegistry(new RegistryConfig("N/A"));
        reference.setUrl(url + "/" + path);
        reference.setGroup(group);
        reference.setVersion(version);
        reference.setTimeout(timeoutMs);
        reference.setRetries(0);
        reference.setCheck(false);
        return reference;
    }
}
