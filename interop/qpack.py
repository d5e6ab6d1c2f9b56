"""ls-qpack, by pylsqpack, reads and writes the sections of dynamic QPACK tables that `tidegate-http3` writes and reads. The README
beside this file says what it needs.

It runs the test `vectors::ls_qpack_reads_and_writes_the_same_heads`, of which it is the peer, with `--peer`. It then reads commands, a
line each, and answers with a line each; bytes are in hexadecimal digits, and `-` is none:

    decoder CAPACITY BLOCKED          a decoder begins
    instructions BYTES                of the encoder stream: numbers of the streams that were waiting
    section STREAM BYTES              `blocked`, or instructions for the decoder stream and the fields
    resume STREAM                     as `section`
    encoder CAPACITY BLOCKED          an encoder begins: instructions
    encode STREAM FIELDS              instructions and the section
    answers BYTES                     of the decoder stream: nothing
"""

import os
import subprocess
import sys

import program

VENV = program.ROOT / "target/tools/aioquic/bin/python3"


def read(text):
    return b"" if text == "-" else bytes.fromhex(text)


def write(data):
    return data.hex() or "-"


def read_fields(text):
    pairs = [field.split("=") for field in text.split(",") if field]
    return [(bytes.fromhex(name), bytes.fromhex(value)) for name, value in pairs]


def write_fields(fields):
    return ",".join(f"{name.hex()}={value.hex()}" for name, value in fields)


def answer(state, command, arguments):
    import pylsqpack

    if command == "decoder":
        state["decoder"] = pylsqpack.Decoder(int(arguments[0]), int(arguments[1]))
    elif command == "instructions":
        return " ".join(map(str, state["decoder"].feed_encoder(read(arguments[0])))) or "-"
    elif command in ("section", "resume"):
        try:
            if command == "section":
                control, fields = state["decoder"].feed_header(int(arguments[0]), read(arguments[1]))
            else:
                control, fields = state["decoder"].resume_header(int(arguments[0]))
        except pylsqpack.StreamBlocked:
            return "blocked"
        return f"{write(control)} {write_fields(fields)}"
    elif command == "encoder":
        state["encoder"] = pylsqpack.Encoder()
        return write(state["encoder"].apply_settings(int(arguments[0]), int(arguments[1])))
    elif command == "encode":
        control, section = state["encoder"].encode(int(arguments[0]), read_fields(arguments[1]))
        return f"{write(control)} {write(section)}"
    elif command == "answers":
        state["encoder"].feed_decoder(read(arguments[0]))
    else:
        raise ValueError(command)
    return "-"


def serve():
    state = {}
    for line in sys.stdin:
        command, *arguments = line.split()
        print(answer(state, command, arguments), flush=True)


def main():
    if "--peer" in sys.argv:
        return serve()
    try:
        import pylsqpack  # noqa: F401
    except ImportError:
        # aioquic needs it.
        if VENV.exists() and os.environ.get("TIDEGATE_QPACK_IN_VENV") != "1":
            os.environ["TIDEGATE_QPACK_IN_VENV"] = "1"
            os.execv(VENV, [VENV, *sys.argv])
        if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
            sys.exit("not there: pylsqpack")
        print("skipped: there is no pylsqpack")
        return None
    test = "vectors::ls_qpack_reads_and_writes_the_same_heads"
    command = ["cargo", "test", "--package", "tidegate-http3", "--test", "suite", test, "--", "--nocapture"]
    environment = {**os.environ, "TIDEGATE_PYLSQPACK": sys.executable}
    subprocess.run(command, check=True, cwd=program.ROOT, env=environment)


if __name__ == "__main__":
    main()
