# For peers that are programs of others: they cannot take any free port, nor say where they listen. Read by their `start`.

# A port that is free now.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# tell_when_up PID FILE PORT DIRECTORY: waits beside the server PID until it has written FILE, which it does once it
# listens, says where, and removes DIRECTORY, of which the server needs nothing any more. Its own parent is gone, so
# that the server, into which this shell turns, gets no child.
tell_when_up() {
    (
        (
            trap 'rm -rf "$4"' EXIT
            while kill -0 "$1" 2>/dev/null; do
                if [ -s "$2" ]; then
                    echo "listening on 127.0.0.1:$3"
                    exit
                fi
                sleep 0.05
            done
        ) &
    )
}
