// The wrapper in use: leases end with their scopes, errors are exceptions.
//
//     c++ -std=c++14 raii.cpp $(pkg-config --cflags --libs cenote) -o raii && ./raii

#include <iostream>
#include <vector>

#include "cenote.hpp"

int main() {
    int made = 0;
    cenote::pool<std::string> words(
        [&made] {
            if (++made > 2) throw std::runtime_error("only two words");
            return std::unique_ptr<std::string>(new std::string(made == 1 ? "hello" : "world"));
        },
        3);
    {
        auto hello = words.acquire();
        auto world = words.acquire();
        std::cout << *hello << " " << *world << "\n";
        try {
            auto third = words.acquire();
            return 1;
        } catch (const cenote::error &e) {
            std::cout << "as it should be: " << e.what() << "\n";
            if (e.code != CENOTE_ERR_CREATE) return 1;
        }
        auto moved = std::move(hello);
        if (hello || !moved) return 1;
        world.discard();
    }
    std::cout << cenote_pool_idle(words.get()) << " idle\n";
    return cenote_pool_idle(words.get()) == 1 ? 0 : 1;
}
