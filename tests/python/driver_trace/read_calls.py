"""Reads the file of the interposer as its format is documented (crates/vramline-driver/src/file.rs), independently of the core."""

import dataclasses
import struct

UNKNOWN = (1 << 64) - 1
HEAD = struct.Struct("<IIHH")
CALL = struct.Struct("<I5QiI2Q2q4QqHHIBBHHxxIxxxx")
FIELDS = [
    "thread", "begin", "end", "bytes", "handle", "other", "result", "flags", "before", "after", "gap", "grew", "pool_reserved",
    "pool_used", "own", "others", "neighbours", "library", "device", "nth", "reason", "depth", "file_length", "name_length", "line",
]
FIXED = 12 + CALL.size


@dataclasses.dataclass
class File:
    """What a file has, up to the first frame that is not whole."""

    dropped: int
    starts: list
    calls: list
    devices: dict
    notes: list
    communicators: list
    torn: int


def checksum(data):
    total = 0x811C9DC5
    for byte in data:
        total = ((total ^ byte) * 0x01000193) & 0xFFFFFFFF
    return total


def read(path):
    data = path.read_bytes()
    magic, version, head, dropped, zero = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, head, zero) == (b"VRAMCALL", 2, 32, 0)
    file = File(dropped, [], [], {}, [], [], 0)
    functions, libraries, place = {}, {}, head
    while place + 12 <= len(data):
        length, total, kind, number = HEAD.unpack_from(data, place)
        frame = data[place : place + length]
        if length < 16 or length % 8 or len(frame) != length or checksum(frame[8:]) != total:
            break
        match kind:
            case 1:
                file.starts.append(struct.unpack_from("<IQQ", frame, 12))
                functions, libraries = {}, {}
            case 2 | 3:
                (count,) = struct.unpack_from("<I", frame, 12)
                (functions if kind == 2 else libraries)[number] = frame[16 : 16 + count].decode()
            case 4:
                file.devices[number] = frame[16:32] if struct.unpack_from("<I", frame, 12)[0] else None
            case 5:
                file.notes.append((number, struct.unpack_from("<I", frame, 12)[0]))
            case 6:
                call = dict(zip(FIELDS, CALL.unpack_from(frame, 12), strict=True))
                call["function"] = functions[number]
                call["library"] = libraries.get(call["library"])
                stack = [struct.unpack_from("<QQ", frame, FIXED + 16 * one) for one in range(call["depth"])]
                call["stack"] = [libraries.get(library) for library, _ in stack]
                text = frame[FIXED + 16 * call["depth"] :]
                call["file"] = text[: call["file_length"]].decode()
                call["name"] = text[call["file_length"] :][: call["name_length"]].decode()
                file.calls.append(call)
            case 7:
                names = ("thread", "time", "handle", "total", "persistent", "suspendable", "suspended", "library")
                found = dict(zip(names, struct.unpack_from("<I7Q", frame, 12), strict=True)) | {"device": number}
                file.communicators.append(found | {"library": libraries.get(found["library"])})
        place += length
    file.torn = len(data) - place
    return file
