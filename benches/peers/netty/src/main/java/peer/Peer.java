// Netty as a peer: `peer.Peer 127.0.0.1:0 epoll|uring`, started by `start`, which also says how the JVM is set up.
//
// From Netty's own TechEmpower entry it has the native transports, one event loop that accepts and serves, headers of
// answers that are built once a second and not once a request, and no flush before all that was read has been answered.
// Unlike that entry, which checks no headers and encodes its answers by a handler of its own, it has the whole
// HttpServerCodec with header checks on: the comparison is with a full codec. It also does what a server that people
// use does: `Connection: close` is obeyed, bodies are bounded, and a peer that does not read is not read from.
package peer;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringIoHandlerConfig;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.handler.codec.http.HttpServerCodec;
import java.net.InetSocketAddress;

public final class Peer {
    // With the sizes that Netty has by default, the completion queue overflows under 256 connections 256 deep.
    private static final int RING_ENTRIES = 4096;
    private static final int COMPLETION_ENTRIES = 65536;

    public static void main(String[] arguments) throws Exception {
        int colon = arguments[0].lastIndexOf(':');
        var address = new InetSocketAddress(
                arguments[0].substring(0, colon), Integer.parseInt(arguments[0].substring(colon + 1)));
        boolean uring = arguments[1].equals("uring");
        IoHandlerFactory transport = uring
                ? IoUringIoHandler.newFactory(
                        new IoUringIoHandlerConfig().setRingSize(RING_ENTRIES).setCqSize(COMPLETION_ENTRIES))
                : EpollIoHandler.newFactory();
        Class<? extends ServerChannel> listener =
                uring ? IoUringServerSocketChannel.class : EpollServerSocketChannel.class;

        var loop = new MultiThreadIoEventLoopGroup(1, transport);
        var pages = new Pages(loop.next());
        Channel channel = new ServerBootstrap()
                .group(loop)
                .channel(listener)
                .option(ChannelOption.SO_REUSEADDR, true)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.ALLOCATOR, ByteBufAllocator.DEFAULT)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel child) {
                        child.pipeline().addLast(new HttpServerCodec(), new Site(pages));
                    }
                })
                .bind(address)
                .sync()
                .channel();
        var bound = (InetSocketAddress) channel.localAddress();
        System.out.println("listening on " + bound.getAddress().getHostAddress() + ":" + bound.getPort());
        channel.closeFuture().sync();
    }
}
