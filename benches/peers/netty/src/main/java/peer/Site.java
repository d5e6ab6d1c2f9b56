package peer;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufAllocatorMetricProvider;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpContent;
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

/**
 * Answers requests, each as it comes, and sends the answers when all that was read has been answered. It collects the
 * bodies of POSTs itself: an HttpObjectAggregator would be one more handler for every other request and connection.
 */
final class Site extends ChannelInboundHandlerAdapter {
    private static final int BODY_BYTES_MAX = 1 << 20;
    // As many as an HttpObjectAggregator keeps apart.
    private static final int BODY_PARTS_MAX = 1024;

    private final Pages pages;
    /** The POST whose body is still coming, and what there is of that; null without one. */
    private HttpRequest post;
    private CompositeByteBuf parts;

    Site(Pages pages) {
        this.pages = pages;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        if (message == LastHttpContent.EMPTY_LAST_CONTENT && post == null) {
            return;
        }
        if (message instanceof HttpRequest request) {
            begin(context, request);
        } else if (post != null && message instanceof HttpContent content) {
            collect(context, content);
        } else {
            ReferenceCountUtil.release(message);
        }
    }

    private void begin(ChannelHandlerContext context, HttpRequest request) {
        if (!request.decoderResult().isSuccess()) {
            ReferenceCountUtil.release(request);
            refuse(context, HttpResponseStatus.BAD_REQUEST);
        } else if (!HttpMethod.POST.equals(request.method())) {
            answer(context, request, respond(request));
        } else if (HttpUtil.getContentLength(request, 0L) > BODY_BYTES_MAX) {
            refuse(context, HttpResponseStatus.REQUEST_ENTITY_TOO_LARGE);
        } else {
            post = request;
            if (HttpUtil.is100ContinueExpected(request)) {
                context.writeAndFlush(empty(HttpResponseStatus.CONTINUE));
            }
        }
    }

    /** Takes a part of a body. A body that comes in one part, as most do, is answered without a composite. */
    private void collect(ChannelHandlerContext context, HttpContent content) {
        boolean malformed = !content.decoderResult().isSuccess();
        ByteBuf body = content.content();
        int before = parts == null ? 0 : parts.readableBytes();
        if (malformed || before + body.readableBytes() > BODY_BYTES_MAX) {
            content.release();
            forget();
            refuse(context, malformed ? HttpResponseStatus.BAD_REQUEST : HttpResponseStatus.REQUEST_ENTITY_TOO_LARGE);
            return;
        }
        boolean last = content instanceof LastHttpContent;
        if (parts != null || !last) {
            if (parts == null) {
                parts = context.alloc().compositeBuffer(BODY_PARTS_MAX);
            }
            body = parts.addComponent(true, body);
        }
        if (last) {
            HttpRequest request = post;
            post = null;
            parts = null;
            // The body goes on in its answer, which releases it.
            answer(context, request, echo(request, body));
        }
    }

    private void forget() {
        ReferenceCountUtil.release(parts);
        post = null;
        parts = null;
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        forget();
    }

    private static void answer(ChannelHandlerContext context, HttpRequest request, FullHttpResponse response) {
        if (HttpUtil.isKeepAlive(request)) {
            context.write(response, context.voidPromise());
        } else {
            context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE);
        }
    }

    private static void refuse(ChannelHandlerContext context, HttpResponseStatus status) {
        context.writeAndFlush(failure(status)).addListener(ChannelFutureListener.CLOSE);
    }

    private FullHttpResponse respond(HttpRequest request) {
        FullHttpResponse page = HttpMethod.GET.equals(request.method()) ? pages.get(request.uri()) : null;
        if (page != null) {
            return page;
        }
        return request.uri().equals("/heap") ? pages.octets(heap()) : failure(HttpResponseStatus.NOT_FOUND);
    }

    private FullHttpResponse echo(HttpRequest request, ByteBuf body) {
        if (request.uri().equals("/echo")) {
            return pages.octets(body);
        }
        body.release();
        return failure(HttpResponseStatus.NOT_FOUND);
    }

    private static FullHttpResponse failure(HttpResponseStatus status) {
        FullHttpResponse response = empty(status);
        response.headers().set(HttpHeaderNames.CONTENT_LENGTH, "0");
        return response;
    }

    private static FullHttpResponse empty(HttpResponseStatus status) {
        return new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, Unpooled.EMPTY_BUFFER);
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
