"""Takes part in locks as kazoo does. Package agent says how commands and answers look.

connect CLIENT [OPTION…]            opens a session: namespace=…, auth=user:password (and gives that alone access)
disconnect CLIENT                   closes it
lost CLIENT                         waits until it is told that its session is lost
mutex NAME CLIENT PATH NODES [ID]   makes a lock. NODES says what its znodes are called and whom it waits for: curator
                                    ("-lock-", and the same), own ("__lock__", and "-lock-" too), alone ("__lock__")
acquire NAME                        waits for the lock; answers with its znode's path
tryacquire NAME MS                  the same, or nothing if that takes too long
release NAME
participants NAME                   the contenders' ids
soak NAME FOLDER TOTAL              increments the counter until it is there; answers with its own share
"""

import logging
import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote_plus, unquote_plus

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock
from kazoo.security import make_digest_acl


class CuratorLock(Lock):
    """kazoo's lock under Curator's node name."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


servers, timeout = sys.argv[1], int(sys.argv[2]) / 1000
clients, lost, locks, threads = {}, {}, {}, {}
output = threading.Lock()
logging.disable()
warnings.simplefilter("ignore")


def connect(name, *options):
    options = dict(option.split("=", 1) for option in options)
    settings = {}
    if "auth" in options:
        user, password = options["auth"].split(":")
        settings["auth_data"] = [("digest", options["auth"])]
        settings["default_acl"] = [make_digest_acl(user, password, all=True)]
    hosts = servers + "/" + options["namespace"] if "namespace" in options else servers
    clients[name], lost[name] = KazooClient(hosts, timeout, **settings), threading.Event()
    clients[name].add_listener(lambda state: lost[name].set() if state == KazooState.LOST else None)
    clients[name].start(60)


def mutex(name, client, path, nodes, identifier=None):
    if nodes == "curator":
        locks[name] = CuratorLock(clients[client], path, identifier)
    else:
        locks[name] = Lock(clients[client], path, identifier, ["-lock-"] if nodes == "own" else [])


def acquire(name, **how):
    lock = locks[name]
    return [lock.path + "/" + lock.node] if lock.acquire(**how) else []


def try_acquire(name, milliseconds):
    try:
        return acquire(name, blocking=milliseconds != "0", timeout=int(milliseconds) / 1000)
    except LockTimeout:
        return []


def soak(name, folder, total):
    """Nothing but the lock guards the two files."""
    lock, share = locks[name], 0
    while True:
        lock.acquire()
        try:
            with open(folder + "/counter") as counter:
                count = int(counter.read())
            if count >= int(total):
                return [str(share)]
            with open(folder + "/order", "a") as order:
                order.write(lock.path + "/" + lock.node + "\n")
            with open(folder + "/counter", "w") as counter:
                counter.write(str(count + 1))
            share += 1
        finally:
            lock.release()


commands = {
    "connect": connect,
    "disconnect": lambda name: clients.pop(name).stop(),
    "lost": lambda name: lost[name].wait() and None,
    "mutex": mutex,
    "acquire": acquire,
    "tryacquire": try_acquire,
    "release": lambda name: locks[name].release() and None,
    "participants": lambda name: locks[name].contenders(),
    "soak": soak,
}


def answer(number, command, *args):
    try:
        words = ["ok"] + [quote_plus(word) for word in commands[command](*args) or []]
    except BaseException as e:
        words = ["error", quote_plus(type(e).__name__ + ": " + str(e))]
    with output:
        print(number, *words, flush=True)


for line in sys.stdin:
    words = [unquote_plus(word) for word in line.rstrip("\n").split(" ")]
    # Each name has a thread of its own, as in Agent.java.
    threads.setdefault(words[2], ThreadPoolExecutor(1)).submit(answer, *words)
for client in clients.values():
    client.stop()
os._exit(0)  # whatever still waits for a lock
