"""Breaks at what Python's own library does."""

import array
import asyncio
import base64
import bisect
import contextlib
import copy
import datetime
import functools
import gc
import glob
import hashlib
import heapq
import importlib
import inspect
import io
import json
import logging
import os
import pathlib
import pickle
import pprint
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import uuid
import warnings

import torch

log = logging.getLogger("breaks")
log.propagate = False
log.addHandler(logging.NullHandler())
lock = threading.Lock()
numbers = [1, 2]

# by name: the cause; the line that breaks; what the rest of the function does with its value ``v``
MOVED = {
    "time": ("`time.time`", "time.time()", "x * v", "varies"),
    "now": ("`datetime.now`", "datetime.datetime.now().second", "x * v", "varies"),
    "environ": ("`posix.putenv`", "os.environ['OF_A_BREAK'] = '1'"),
    "exists": ("`posix.stat`", "os.path.exists('/tmp')", "x + 1 if v else x"),
    "glob": ("`sys.audit`", "glob.glob('/tmp*')", "x * len(v)", "varies"),
    "open": ("`open`", "with open(os.devnull, 'a') as file: file.write('x')"),
    "random": ("`Random.random`", "random.random()", "x * v"),
    "seed": ("`Random.seed`", "random.seed(0)"),
    "json_dumps": ("`Encoder`", "json.dumps({'a': 1})", "x * len(v)"),
    "pickle": ("`_pickle.dumps`", "pickle.dumps([1])", "x * len(v)"),
    "md5": ("`_hashlib.openssl_md5`", "hashlib.md5(b'a').hexdigest()", "x * len(v)"),
    "uuid": ("`posix.urandom`", "uuid.uuid4().hex", "x * len(v)"),
    "bytearray": ("`bytearray`", "bytearray(b'abc')[0]", "x * v"),
    "list_copy": ("`list.copy`", "copy.copy(numbers)", "x * v[0]"),
    "subprocess": ("`_thread.allocate_lock`", "subprocess.run(['true'])"),
    "getsignal": ("`_signal.getsignal`", "signal.getsignal(signal.SIGINT)"),
    "import_module": ("`import_module`", "importlib.import_module('math').pi", "x * v"),
    "frame": ("`sys._getframe`", "sys._getframe().f_lineno", "x * v", "varies"),
    "signature": ("hasattr", "inspect.signature(str.join).parameters", "x * len(v)"),
    "collect": ("`gc.collect`", "gc.collect()"),
    "acquire": ("`lock.acquire`", "lock.acquire() and lock.release()"),
    "thread": ("`_thread.get_ident`", "threading.Thread(target=int).start()"),
    "stringio": ("`StringIO`", "io.StringIO('a').getvalue()", "x * len(v)"),
    "stdout": ("write", "sys.stdout.write('x')"),
    "isatty": ("isatty", "sys.stdout.isatty()", "x + 1 if v else x + 2"),
    "pprint": ("sort with", "pprint.pprint({'a': 1})"),
    "globals": ("`globals`", "len(globals())", "x * v", "varies"),
    "eval": ("`eval`", "eval('len(numbers)')", "x * v"),
    "dir": ("`dir`", "dir(log)", "x * len(v)"),
    "class": ("it defines a class", "class A: b = 2"),
    "lru_cache": ("`_lru_cache_wrapper`", "functools.lru_cache(len)", "x * v('abc')"),
    "log_of_root": ("an object that PyTorch does not trace", "logging.debug('hello')"),
}

CURED = {
    "size_of_a_random_slice": {
        "cause": "a random number",
        "remedy": "draw it if it is random, outside of the compiled function and pass it",
        "broken": "v = random.randint(1, 2)\nreturn x[:v] + 1  #!",
        "cured": "return x[:v] + 1",
        "outside": "random.randint(1, 2)",
        "varies": True,
    },
    "print": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "print('x', x.sum())\nreturn x + 1",
        "cured": "return x + 1",
        "adds": "print",
    },
    "print_to_a_file": {
        "cause": "`print`",
        "remedy": "without file=",
        "broken": "print('x', file=sys.stderr)\nreturn x + 1",
        "cured": "return x + 1",
        "adds": "print",
        "despite": ("reorderable_logging_functions",),
    },
    "log": {
        "cause": "logging.Logger",
        "remedy": "Take the logging out",
        "broken": "log.info('hello')\nreturn x + 1",
        "cured": "return x + 1",
        "adds": "logging.Logger.info",
    },
    "log_level": {
        "cause": "logging.Logger",
        "remedy": "Take the logging out",
        "broken": "v = log.isEnabledFor(10)\nreturn x + 1 if v else x + 2",
        "cured": "return x + 1 if v else x + 2",
        "outside": "log.isEnabledFor(10)",
        "adds": "logging.Logger.isEnabledFor",
    },
    "warn": {
        "cause": "`_warnings.warn`",
        "remedy": "Take the warning out",
        "broken": "warnings.warn('old', DeprecationWarning)\nreturn x + 1",
        "cured": "return x + 1",
        "adds": "warnings.warn",
    },
    "catch_warnings": {
        "cause": "`_warnings._filters_mutated`",
        "broken": "with warnings.catch_warnings():  #!\n    warnings.simplefilter('ignore')  #!\n"
        "    return x + 1",
        "cured": "return x + 1",
        "outside": "warnings.catch_warnings().__enter__()",
    },
    "lock": {
        "cause": "context manager `lock`",
        "remedy": "Enter the context manager",
        "broken": "with lock:\n    return x + 1",
        "cured": "return x + 1",
    },
    "redirect": {
        "cause": "context manager `redirect_stdout`",
        "remedy": "Enter the context manager",
        "broken": "with contextlib.redirect_stdout(None):\n    return x + 1",
        "cured": "return x + 1",
    },
    "exit_stack": {
        "cause": "`set_grad_enabled.__enter__`",
        "broken": "with contextlib.ExitStack() as stack:\n"
        "    stack.enter_context(torch.no_grad())  #!\n    return x + 1",
        "cured": "return x + 1",
    },
    "deepcopy": {
        "cause": "copy.deepcopy",
        "remedy": "Copy a tensor with clone()",
        "broken": "return copy.deepcopy(x) + 1",
        "cured": "return x.clone() + 1",
    },
    "namespace": {
        "cause": "`types.SimpleNamespace`",
        "broken": "v = types.SimpleNamespace(a=2)\nreturn x * v.a",
        "cured": "return x * v.a",
        "outside": "types.SimpleNamespace(a=2)",
    },
    "text_of_a_tensor": {
        "cause": "`str`",
        "broken": "v = len(str(x))\nreturn x * v",
        "cured": "return x * v",
        "outside": "len(str(x))",
    },
    "repr_of_a_tensor": {
        "cause": "repr() on tensor",
        "broken": "v = len(repr(x))\nreturn x * v",
        "cured": "return x * v",
        "outside": "len(repr(x))",
    },
    "format_of_a_tensor": {
        "cause": "raises an exception `TypeError` while PyTorch traces it",
        "remedy": "else run this line outside of the compiled function",
        "broken": "v = f'{x.sum()}'\nreturn x * len(v)  #!",
        "cured": "return x * len(v)",
        "outside": "f'{x.sum()}'",
    },
    "percent_of_a_tensor": {
        "cause": "returns no tensor",
        "broken": "v = 'loss %s' % x.sum()\nreturn x * len(v)",
        "cured": "return x * len(v)",
        "outside": "'loss %s' % x.sum()",
    },
    "hash_of_a_tensor": {
        "cause": "raises an exception `TypeError`",
        "remedy": "else run this line outside of the compiled function",
        "broken": "v = hash(x) % 7\nreturn x * v",
        "cured": "return x * v",
        "outside": "hash(x) % 7",
        "varies": True,
    },
}
