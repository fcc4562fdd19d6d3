"""A client of an app without a socket: requests go to the app in a loop of its own thread."""

import asyncio
import threading

import httpx


class Client:
    """Sends requests to an app; ``start`` gives one under way, ``request`` its response."""

    def __init__(self, app, **options):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        options = {"base_url": "http://localhost:8017"} | options
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), **options)

    def start(self, method, address, **request):
        """A request that is under way: a future of its response."""
        return asyncio.run_coroutine_threadsafe(self._client.request(method, address, **request), self._loop)

    def call(self, function, *args):
        """Call something in the loop of the app."""
        self._loop.call_soon_threadsafe(function, *args)

    def get(self, address, **request):
        return self.start("GET", address, **request).result(60)

    def post(self, address, **request):
        return self.start("POST", address, **request).result(60)

    def close(self):
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
