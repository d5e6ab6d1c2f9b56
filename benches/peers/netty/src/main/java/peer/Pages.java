package peer;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.EventLoop;
import io.netty.handler.codec.DateFormatter;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpHeadersFactory;
import io.netty.handler.codec.http.EmptyHttpHeaders;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.AsciiString;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** What can be asked for with GET, by its path. Headers and bodies are shared by all answers; the date is renewed once a second. */
final class Pages {
    private static final String BYTES = "/bytes/";
    private static final int BYTES_MAX = 1 << 20;
    private static final int PAGES_MAX = 64;
    private static final AsciiString SERVER = AsciiString.cached("Netty");

    private final Map<String, Page> pages = new HashMap<>();
    private final ByteBuf bytes;
    private AsciiString date = now();

    private record Page(HttpHeaders headers, ByteBuf body) {}

    Pages(EventLoop loop) {
        bytes = Unpooled.directBuffer(BYTES_MAX, BYTES_MAX);
        for (int i = 0; i < BYTES_MAX; i++) {
            bytes.writeByte('x');
        }
        var hello = "Hello, World!".getBytes(StandardCharsets.US_ASCII);
        var body = Unpooled.directBuffer(hello.length, hello.length).writeBytes(hello);
        pages.put("/plaintext", new Page(headers(HttpHeaderValues.TEXT_PLAIN, hello.length), shared(body)));
        loop.scheduleAtFixedRate(this::renewDate, 1, 1, TimeUnit.SECONDS);
    }

    /** The answer to a GET, or null if there is no such page. */
    FullHttpResponse get(String path) {
        Page page = pages.get(path);
        if (page == null) {
            page = bytesPage(path);
            if (page == null) {
                return null;
            }
            if (pages.size() < PAGES_MAX) {
                pages.put(path, page);
            }
        }
        return answer(page.headers, page.body.duplicate());
    }

    /** An answer with a body of its own, which is released once it has been sent. */
    FullHttpResponse octets(ByteBuf body) {
        return answer(headers(HttpHeaderValues.APPLICATION_OCTET_STREAM, body.readableBytes()), body);
    }

    private Page bytesPage(String path) {
        if (!path.startsWith(BYTES)) {
            return null;
        }
        int count;
        try {
            count = Integer.parseInt(path.substring(BYTES.length()));
        } catch (NumberFormatException malformed) {
            return null;
        }
        if (count < 0 || count > BYTES_MAX) {
            return null;
        }
        return new Page(headers(HttpHeaderValues.APPLICATION_OCTET_STREAM, count), shared(bytes.slice(0, count)));
    }

    private static ByteBuf shared(ByteBuf body) {
        return Unpooled.unreleasableBuffer(body.asReadOnly());
    }

    private static FullHttpResponse answer(HttpHeaders headers, ByteBuf body) {
        return new DefaultFullHttpResponse(
                HttpVersion.HTTP_1_1, HttpResponseStatus.OK, body, headers, EmptyHttpHeaders.INSTANCE);
    }

    private HttpHeaders headers(CharSequence contentType, int contentLength) {
        // What stands here needs no check for line breaks.
        return DefaultHttpHeadersFactory.headersFactory().withValidation(false).newHeaders()
                .set(HttpHeaderNames.CONTENT_TYPE, contentType)
                .set(HttpHeaderNames.SERVER, SERVER)
                .set(HttpHeaderNames.DATE, date)
                .set(HttpHeaderNames.CONTENT_LENGTH, AsciiString.of(Integer.toString(contentLength)));
    }

    private void renewDate() {
        date = now();
        for (Page page : pages.values()) {
            page.headers.set(HttpHeaderNames.DATE, date);
        }
    }

    private static AsciiString now() {
        return new AsciiString(DateFormatter.format(new Date()));
    }
}
