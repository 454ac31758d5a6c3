// A C++ face of cenote.h: pools and leases that end with their scope. C++14.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <cenote.h>

namespace cenote {

/// What a call failed with.
struct error : std::runtime_error {
    int code;
    explicit error(int c) : std::runtime_error(cenote_last_error_text()), code(c) {}
    static void check(int code) {
        if (code < 0) throw error(code);
    }
};

template <class T> class pool;
/// A resource on loan; it goes back with its scope.
template <class T> class lease {
    friend class pool<T>;
    cenote_pool *from = nullptr;
    cenote_lease held = cenote_lease();
    lease(cenote_pool *p, const cenote_lease &l) : from(p), held(l) {}

  public:
    lease() = default;
    lease(lease &&other) noexcept { swap(other); }
    lease &operator=(lease &&other) noexcept {
        lease(std::move(other)).swap(*this);
        return *this;
    }
    ~lease() {
        if (from != nullptr) cenote_release(from, &held);
    }
    void swap(lease &other) noexcept {
        std::swap(from, other.from);
        std::swap(held, other.held);
    }
    /// It is broken: have it destroyed.
    void discard() { error::check(cenote_discard(std::exchange(from, nullptr), &held)); }
    explicit operator bool() const { return from != nullptr; }
    T &operator*() const { return *static_cast<T *>(held.resource); }
    T *operator->() const { return static_cast<T *>(held.resource); }
};

/// A pool of T, made by a function; copies are references to the same pool.
template <class T> class pool {
    using factory = std::function<std::unique_ptr<T>()>;
    std::shared_ptr<cenote_pool> handle;

    // No exception may leave a callback.
    static int create(void *data, void **resource) {
        try {
            *resource = (*static_cast<factory *>(data))().release();
            return 0;
        } catch (const std::exception &e) {
            cenote_set_error_text(e.what());
        } catch (...) {
            cenote_set_error_text("an unknown exception");
        }
        return -1;
    }
    static int destroy(void *, void *resource) {
        delete static_cast<T *>(resource);
        return 0;
    }
    static void dispose(void *data) { delete static_cast<factory *>(data); }

  public:
    pool(factory make, std::size_t max, std::size_t min = 0) {
        std::unique_ptr<factory> data(new factory(std::move(make)));
        cenote_options options;
        error::check(cenote_options_init(&options, sizeof options));
        options.data = data.get();
        options.create = create;
        options.destroy = destroy;
        options.dispose = dispose;
        options.max = max;
        options.min = min;
        cenote_pool *made = nullptr;
        error::check(cenote_pool_new(&options, &made));
        data.release();
        handle = std::shared_ptr<cenote_pool>(made, [](cenote_pool *p) { cenote_pool_unref(p); });
    }
    lease<T> acquire(int64_t timeout_ms = CENOTE_FOREVER) const {
        cenote_lease l;
        error::check(cenote_acquire(handle.get(), timeout_ms, &l));
        return lease<T>(handle.get(), l);
    }
    cenote_pool *get() const { return handle.get(); }
};

} // namespace cenote
