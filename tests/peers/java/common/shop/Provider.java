package shop;

/** shop.Provider PORT [NAME]: offers Shop, g1/Shop:1.0.0 and, from 2.7 on, LaterShop; ends when its input ends. */
public class Provider {
    public static void main(String[] args) throws Exception {
        String name = args.length > 1 ? args[1] : "plain";
        Dubbo.offer(Shop.class, new OpenShop(name), null, null);
        Dubbo.offer(Shop.class, new OpenShop(name + "-g1"), "g1", "1.0.0");
        if (Dubbo.FUTURES) Dubbo.offer(LaterShop.class, new OpenShop.Later(), null, null);
        Dubbo.serve(Integer.parseInt(args[0]));
        System.out.println("READY " + Dubbo.LINE);
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(0);
    }
}
