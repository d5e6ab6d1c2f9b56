package peer;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufAllocatorMetricProvider;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.ReferenceCountUtil;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;

/** Answers requests, each as it comes, and sends the answers when all that was read has been answered. */
final class Site extends ChannelInboundHandlerAdapter {
    private final Pages pages;

    Site(Pages pages) {
        this.pages = pages;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        if (message == LastHttpContent.EMPTY_LAST_CONTENT) {
            return;
        }
        if (message instanceof HttpRequest request) {
            // The body of a POST goes on in its answer, which releases it.
            answer(context, request);
        } else {
            ReferenceCountUtil.release(message);
        }
    }

    private void answer(ChannelHandlerContext context, HttpRequest request) {
        FullHttpResponse response = request.decoderResult().isSuccess()
                ? respond(request)
                : failure(HttpResponseStatus.BAD_REQUEST, request);
        if (HttpUtil.isKeepAlive(request) && request.decoderResult().isSuccess()) {
            context.write(response, context.voidPromise());
        } else {
            context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE);
        }
    }

    private FullHttpResponse respond(HttpRequest request) {
        if (request instanceof FullHttpRequest post) {
            return post.uri().equals("/echo")
                    ? pages.octets(post.content())
                    : failure(HttpResponseStatus.NOT_FOUND, request);
        }
        FullHttpResponse page = HttpMethod.GET.equals(request.method()) ? pages.get(request.uri()) : null;
        if (page != null) {
            return page;
        }
        return request.uri().equals("/heap") ? pages.octets(heap()) : failure(HttpResponseStatus.NOT_FOUND, request);
    }

    private static FullHttpResponse failure(HttpResponseStatus status, HttpRequest request) {
        ReferenceCountUtil.release(request);
        var response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, Unpooled.EMPTY_BUFFER);
        response.headers().set(HttpHeaderNames.CONTENT_LENGTH, "0");
        return response;
    }

    /** The heap that is live after a full collection, and the direct memory that the allocator holds: one sum. */
    private static ByteBuf heap() {
        System.gc();
        long live = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
        long direct = ((ByteBufAllocatorMetricProvider) ByteBufAllocator.DEFAULT).metric().usedDirectMemory();
        return Unpooled.copiedBuffer(Long.toString(live + direct), StandardCharsets.US_ASCII);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
        if (!context.channel().isWritable()) {
            context.channel().config().setAutoRead(false);
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (context.channel().isWritable()) {
            context.channel().config().setAutoRead(true);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
